# docker build -t atomizer-io .
# docker run --rm -v "$PWD:/data" atomizer-io map --raster s2.tif --sensor sentinel2 --labels fields.gpkg -o map.tif
FROM python:3.12-slim AS build
COPY . /src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src

FROM python:3.12-slim
# cc: the kernels of the network are compiled at first use, for the processor at hand
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev libexpat1 && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
COPY constraints.txt /constraints.txt
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "$(grep '^torch==' /constraints.txt)" \
    && pip install --no-cache-dir -c /constraints.txt "$(echo /wheels/*.whl)[all]"
RUN useradd --create-home atomizer && mkdir /data && chown atomizer /data
USER atomizer
ENV OMP_NUM_THREADS=1
WORKDIR /data
ENTRYPOINT ["atomizer"]
CMD ["--help"]

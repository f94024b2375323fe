"""QGIS Processing script: maps from rasters, and maps from labels, by the command `atomizer`; QGIS needs no torch.

Processing toolbox → Python icon → Add script to toolbox … → this file. Then "atomizer" in the toolbox. The command is
the one of the environment where atomizer-io is installed: give its path, such as /home/me/venv/bin/atomizer.
"""

from __future__ import annotations

import os
import shlex
import subprocess

from qgis.core import (
    QgsProcessing,
    QgsProcessingAlgorithm,
    QgsProcessingException,
    QgsProcessingParameterEnum,
    QgsProcessingParameterFeatureSource,
    QgsProcessingParameterField,
    QgsProcessingParameterFile,
    QgsProcessingParameterMultipleLayers,
    QgsProcessingParameterRasterDestination,
    QgsProcessingParameterString,
)

PREDICT, MAP = range(2)
TASKS = ("Map with a model (predict)", "Train on labels and map (map)")


def command(program, task, rasters, output, *, sensors=(), model="", labels="", column="", more=""):
    """Return the words of the command; a sensor belongs to the raster of the same number, and may be missing."""
    words = [program, "predict" if task == PREDICT else "map"]
    for number, path in enumerate(rasters):
        words += ["--raster", path]
        if number < len(sensors) and sensors[number]:
            words += ["--sensor", sensors[number]]
    if task == PREDICT:
        words += ["--model", model]
    else:
        words += ["--labels", labels, *(["--class-column", column] if column else [])]
    return [*words, "-o", output, "--overwrite", "--quiet", *shlex.split(more)]


class Atomizer(QgsProcessingAlgorithm):
    """The algorithm as the toolbox shows it."""

    def name(self):
        return "atomizer"

    def displayName(self):
        return "Atomizer: map from rasters"

    def createInstance(self):
        return Atomizer()

    def shortHelpString(self):
        return (
            "Makes a map of overlapping rasters of any sensors, each in its own resolution and coordinate system, with "
            "the command atomizer. Sensors are names such as sentinel2,sentinel1, one for each raster in order; "
            "rasters whose bands are described need none."
        )

    def initAlgorithm(self, config=None):
        add = self.addParameter
        add(QgsProcessingParameterEnum("TASK", "What to do", TASKS, defaultValue=PREDICT))
        add(QgsProcessingParameterMultipleLayers("RASTERS", "Rasters", QgsProcessing.TypeRaster))
        add(QgsProcessingParameterString("SENSORS", "Sensors of the rasters, by commas", optional=True))
        folder = QgsProcessingParameterFile.Folder
        add(QgsProcessingParameterFile("MODEL", "Model (to predict)", folder, optional=True))
        vector = [QgsProcessing.TypeVectorAnyGeometry]
        add(QgsProcessingParameterFeatureSource("LABELS", "Labels (to train)", vector, optional=True))
        add(QgsProcessingParameterField("COLUMN", "Their class", parentLayerParameterName="LABELS", optional=True))
        add(QgsProcessingParameterString("MORE", "Further options, such as --max-time 10m", optional=True))
        add(QgsProcessingParameterString("PROGRAM", "The command", defaultValue="atomizer"))
        add(QgsProcessingParameterRasterDestination("OUTPUT", "Map"))

    def processAlgorithm(self, parameters, context, feedback):
        task = self.parameterAsEnum(parameters, "TASK", context)
        output = self.parameterAsOutputLayer(parameters, "OUTPUT", context)
        labels = (
            self.parameterAsCompatibleSourceLayerPath(parameters, "LABELS", context, ["gpkg"]) if task == MAP else ""
        )
        words = command(
            self.parameterAsString(parameters, "PROGRAM", context),
            task,
            [layer.source() for layer in self.parameterAsLayerList(parameters, "RASTERS", context)],
            output,
            sensors=[name.strip() for name in self.parameterAsString(parameters, "SENSORS", context).split(",")],
            model=self.parameterAsFile(parameters, "MODEL", context),
            labels=labels,
            column=self.parameterAsString(parameters, "COLUMN", context),
            more=self.parameterAsString(parameters, "MORE", context),
        )
        feedback.pushCommandInfo(shlex.join(words))
        run(words, feedback)
        return {"OUTPUT": output}


def run(words, feedback):
    """Run the command; its lines go to the log, its errors become those of the algorithm."""
    # QGIS sets these for its own Python and GDAL, which another environment must not take
    foreign = ("PYTHONHOME", "PYTHONPATH", "GDAL_DATA", "PROJ_LIB", "PROJ_DATA", "LD_LIBRARY_PATH")
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment}
    try:
        process = subprocess.Popen(words, **how)
    except OSError as error:
        raise QgsProcessingException(f"{words[0]} cannot be started: {error.strerror}. Give its full path.") from error
    last = ""
    for line in process.stdout:
        last = line.strip() or last
        feedback.pushInfo(line.rstrip())
        if feedback.isCanceled():
            process.terminate()
    if process.wait() and not feedback.isCanceled():
        raise QgsProcessingException(last)

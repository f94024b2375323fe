"""The network of the paper. Where to read on:

1. ``reference.py``: the equations term by term, slow and plain; whoever has read it knows the forward pass.
2. ``atomizer.py``: the same with finished stages, box for box as in the paper's figure: ``tokenizer.py``,
   ``encoder.py``, ``processor.py``, ``temporal.py``, ``decoder.py`` (with ``observations.py``) and ``heads.py``.
   ``config.py`` has every setting, ``stages.py`` builds the stages from them.
3. ``geometry/``: anchors, cells and neighbours, which depend on positions only; ``prepare.py`` builds them in workers.
4. ``ops/``: what makes it fast: folded attention, compiled kernels, blocks of bounded memory.
"""

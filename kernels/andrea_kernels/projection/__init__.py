"""Projections in Triton: device code, tiles and the autograd functions behind `triton_projection.py`.

Read `device.py` first; `tiles.py` says how large its tiles are on which GPU, and `function.py` launches them.
A folder of its own, so that listing the kernels imports neither torch nor triton.
"""

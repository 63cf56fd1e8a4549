"""Predicting the time of an Op on a GPU of the catalogue, from its bound and one efficiency per family."""

from andrea_bench.predict.cells import cell, predicted_kernels
from andrea_bench.predict.matrix_product import matmul
from andrea_bench.predict.prediction import Prediction, Ratio, ratio

__all__ = ["Prediction", "Ratio", "cell", "matmul", "predicted_kernels", "ratio"]

from andrea_bench import asv_adapter


class Layer(asv_adapter.SuiteBenchmark):
    suite = "layer"
    n_heads = (12,)

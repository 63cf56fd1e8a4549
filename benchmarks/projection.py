from andrea_bench import asv_adapter


class Projection(asv_adapter.SuiteBenchmark):
    suite = "projection"

from andrea_bench import asv_adapter


class Decode(asv_adapter.SuiteBenchmark):
    suite = "decode"

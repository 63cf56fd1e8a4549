from andrea_bench import asv_adapter


class Output(asv_adapter.SuiteBenchmark):
    suite = "output"

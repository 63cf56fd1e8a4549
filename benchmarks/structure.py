from andrea_bench import asv_adapter


class Structure(asv_adapter.StructureBenchmark):
    gpus = ("a100_sxm4_80gb", "rtx_4090", "h100_sxm5_80gb", "b200", "rtx_5090")

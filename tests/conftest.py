import os

import torch

torch.set_num_threads(1)  # tests run in parallel processes; threads of small products would only wait
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # its kernels then run on the CPU

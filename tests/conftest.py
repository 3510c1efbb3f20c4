import torch

torch.set_num_threads(1)  # tests run in parallel processes; threads of small products would only wait

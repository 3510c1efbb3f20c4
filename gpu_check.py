import os, sys, time
sys.path[:0] = ["src", "tests"]
import torch, torch.distributed as dist
from dataclasses import replace
from pathlib import Path
torch.backends.cuda.matmul.allow_tf32 = False
from sgpa import distributed
import parallel_runs as p
out = Path("/tmp/gpu_check")
names = ["mle with dropout on images", "sgpa with two samples and dropout on texts", "sgpa regression on graphs", "mfvi on images", "sngp on images", "joint sgpa on texts"]
def models(where):
    for n in names:
        m = replace(p.CASES[n](), device="cuda", directory=where / n).fit()
        yield n, {k: v.cpu() for k, v in m.state_dict().items()}
if "RANK" in os.environ and os.environ["WORLD_SIZE"] == "2":
    torch.cuda.set_device(0); dist.init_process_group("gloo")
    for n, s in models(out / "two"):
        if distributed.leader(): torch.save(s, out / f"{n}.pt")
elif "RANK" in os.environ:  # one rank, nccl: is the combined backend fine
    distributed._take_gpu(0); dist.init_process_group("cpu:gloo,cuda:nccl")
    distributed._control.append(dist.new_group(backend="gloo"))
    distributed.world = lambda: 2; distributed.rank = lambda: 0
    import sgpa.parallel as par
    real = par.share
    par.share = lambda rows, rank, world: real(rows, 0, 1)
    def alone(self, *a):
        orig(self, *a); self.world = 1
    orig = par.DataParallel.__init__; par.DataParallel.__init__ = alone
    for n, s in models(out / "nccl"):
        torch.save(s, out / f"nccl {n}.pt")
    print("nccl ok", dist.get_backend())
else:
    out.mkdir(exist_ok=True)
    for n, s in models(out / "one"):
        for kind in ("", "nccl "):
            o = torch.load(out / f"{kind}{n}.pt")
            print(kind, n, max(float((o[k] - s[k]).abs().max()) for k in s))

"""Values that can be chosen differently: what a recipe says, what else could be said, and why it matters."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Alternative:
    """A field of recipes with another reading. `set` is what picks the other one."""

    recipes: tuple[str, ...]
    field: str
    chosen: str
    other: str
    set: tuple[str, ...]


CIFAR = ("cifar10", "cifar10-augmented", "cifar100", "cifar100-augmented")
TEXT = ("imdb", "cola")
PAPER = (*CIFAR, *TEXT, "zinc")
DROPPING = ("cifar10", *TEXT, "zinc")  # with dropout on when SGPA predicts: better on validation data

ALTERNATIVES = (
    Alternative(
        PAPER,
        "sgpa.kl",
        "the ELBO of the data set: the KL of u_g, which all sequences share, counts once (1/N)",
        "the ELBO of a single sequence, as printed: both parts count fully, and q collapses to the prior",
        ("sgpa.kl.g=1.0", "sgpa.kl.a=1.0"),
    ),
    Alternative(
        PAPER,
        "sgpa.kl.anneal",
        "KL weights grow during the first half of training, as in the authors' CIFAR code",
        "full weights from the first step: the text mentions no annealing",
        ("sgpa.kl.anneal=0",),
    ),
    Alternative(
        PAPER,
        "sgpa.attention.init",
        "small initial S_g and v_g: nearly deterministic at the global keys",
        "every free number of q(u_g) a standard normal, as printed",
        ("sgpa.attention.init=paper",),
    ),
    Alternative(
        PAPER,
        "sgpa.init_on_data",
        "global inducing points start on tokens of the training data",
        "they start as standard normals, as printed",
        ("sgpa.init_on_data=false",),
    ),
    Alternative(
        CIFAR[:2],
        "kernel.locality",
        "keys carry the places of their patches, and heads begin by attending to neighbours",
        "keys are projections of tokens alone, as printed: less accurate in all methods",
        ("kernel.locality=[]",),
    ),
    Alternative(
        ("cifar10",),
        "optim.epochs",
        "130 epochs for every method (SGPA 30 + 100): without augmentation more of them overfit",
        "600 (SGPA 100 + 500), as printed",
        ("optim.epochs=600", "stage1.epochs=100", "stage2.epochs=500"),
    ),
    Alternative(
        ("cifar10-augmented",),
        "optim.epochs",
        "200 epochs, then 20 at a lower rate for all but MFVI and SNGP; SGPA goes on from the finished MLE",
        "600 (SGPA 100 + 500), as printed",
        (
            "optim.epochs=600",
            "stage1.epochs=100",
            "stage2.epochs=500",
            "stage2.lr=5e-4",
            "stage2_for_all=false",
        ),
    ),
    Alternative(
        ("cifar10-augmented",),
        "stage2_dropout",
        "the 20 epochs go without dropout, but for MC dropout: augmented images are regularisation enough",
        "dropout stays on to the end",
        ("stage2_dropout=none",),
    ),
    Alternative(
        ("cifar10-augmented",),
        "sgpa.attention.form",
        "Cheng and Boots' form, a tenth of the noise, hardly a price: what the point model learned stays",
        "orthogonal, as printed: its mean loses what the global keys explain, and has to be learned again",
        ("sgpa.attention.form=orthogonal", "sgpa.initial_variance_scale=1", "sgpa.kl.a=1e-4"),
    ),
    Alternative(
        ("cifar10-augmented",),
        "model.heads",
        "eight heads of 32 numbers",
        "four of 64, as printed: with length-scales of 1 the first layers start out attending to nothing",
        ("model.heads=4", "kernel.locality=[1,1,2,3]"),
    ),
    Alternative(
        TEXT,
        "kernel",
        "ARD-RBF, whose keys carry the places of their tokens: heads begin by attending near or far",
        "exponential, keys are projections of tokens alone, as printed: SGPA's v_a then starts far too large",
        ("kernel.locality=[]", "kernel.name=exponential"),
    ),
    Alternative(
        ("imdb",),
        "optim.epochs",
        "6 epochs (SGPA 2 + 5), the learning rate falling to 1e-5: more of them overfit",
        "20 (SGPA 8 + 12) with a learning rate that ends at 1e-4, as printed",
        (
            "optim.epochs=20",
            "stage1.epochs=8",
            "stage2.epochs=12",
            "optim.final_lr=1e-4",
            "stage2.final_lr=1e-4",
        ),
    ),
    Alternative(
        ("imdb",),
        "model.dropout",
        "dropout 0.3, which takes whole tokens away too; embeddings of new tokens are small",
        "dropout 0.1 of single numbers, embeddings are standard normals, as in the authors' code",
        ("model.dropout=0.1", "model.embedding.drop=0", "model.embedding.scale=1"),
    ),
    Alternative(
        (*CIFAR[:2], *TEXT),
        "optim.weight_decay",
        "weights of linear maps decay, which helps every method",
        "Adam without decay, as printed",
        ("optim.weight_decay=0", "stage1.weight_decay=0", "stage2.weight_decay=0"),
    ),
    Alternative(
        DROPPING,
        "sgpa.dropout_at_prediction",
        "dropout stays on when SGPA predicts, as in MC dropout: the MLPs' uncertainty is sampled too",
        "it is off, as in the authors' code: attention alone is sampled",
        ("sgpa.dropout_at_prediction=false",),
    ),
    Alternative(
        tuple(name for name in PAPER if name not in DROPPING),
        "sgpa.dropout_at_prediction",
        "dropout is off when SGPA predicts, as in the authors' code: attention alone is sampled",
        "it stays on, as in MC dropout: the MLPs' uncertainty is sampled too",
        ("sgpa.dropout_at_prediction=true",),
    ),
    Alternative(
        CIFAR[:2],
        "ensemble_temperature",
        "the average of an ensemble gets a temperature, found on validation images",
        "the average is the answer, as printed: it is not sure enough of itself",
        ("ensemble_temperature=false",),
    ),
    Alternative(
        PAPER,
        "kernel.preset",
        "kernel variance and length-scales start as in the authors' code",
        "all ones: the text states no initial values",
        ("kernel.preset=paper",),
    ),
    Alternative(
        PAPER,
        "sgpa.attention.joint",
        "noise of single tokens is independent, as at the paper's inference and in today's public code",
        "noise is drawn from the full covariance over tokens, as the equation has it",
        ("sgpa.attention.joint=true",),
    ),
    Alternative(
        PAPER,
        "sgpa.attention.whitened",
        "S_g is learned in whitened form, as in the authors' code",
        "a free Cholesky factor of S_g itself, as printed",
        ("sgpa.attention.whitened=false",),
    ),
    Alternative(
        (*CIFAR, "imdb"),
        "optim.select",
        "the epoch of the best validation NLL is kept",
        "the epoch of the best validation accuracy, as in the text",
        ("optim.select=accuracy", "stage1.select=accuracy", "stage2.select=accuracy"),
    ),
    Alternative(
        ("zinc",),
        "optim.select",
        "the epoch of the best validation MAE is kept (the text says accuracy, which there is none of)",
        "the epoch of the best validation NLL",
        ("optim.select=nll", "stage1.select=nll", "stage2.select=nll"),
    ),
    Alternative(
        ("cifar10", *CIFAR[2:]),
        "stage1.final_lr",
        "the model SGPA starts from is trained with a schedule of its own",
        "it is an early epoch of the schedule of all epochs",
        ("stage1.final_lr=4.18e-4",),
    ),
    Alternative(
        CIFAR,
        "optim.warmup",
        "the learning rate falls linearly from the first step, as in the text",
        "it rises for five epochs first, as in the authors' code",
        ("optim.warmup=5", "stage1.warmup=5", "stage2.warmup=5"),
    ),
    Alternative(
        (*CIFAR[:2], *TEXT),
        "model.pooling",
        "a learned softmax over tokens, as in the authors' code",
        "the mean over tokens, as in the text",
        ("model.pooling=mean",),
    ),
    Alternative(
        CIFAR[2:],
        "model.pooling",
        "the mean over tokens, as in the text",
        "a learned softmax over tokens, as in the authors' code",
        ("model.pooling=sequence",),
    ),
    Alternative(
        CIFAR,
        "task.split",
        "all seeds share one validation split, so that ensembles never saw it",
        "every seed draws its own",
        ("task.split=per-seed",),
    ),
    Alternative(
        ("cifar10",),
        "sgpa.attention.num_global",
        "32 global keys, as in the table of settings",
        "16, as in the authors' code and in the runtime table",
        ("sgpa.attention.num_global=16",),
    ),
    Alternative(
        ("imdb",),
        "model.depth",
        "one layer, as in the table of settings",
        "two, the default of the authors' code",
        ("model.depth=2",),
    ),
    Alternative(
        ("cola",),
        "task.language_model",
        "features of a language model trained on IMDB's texts, and how likely it finds each word, stand for "
        "the pretrained ones of the authors",
        "words alone: the text says ELMo-style and speaks of no pretraining",
        ("task.language_model=none",),
    ),
    Alternative(
        ("cola",),
        "optim.epochs",
        "20 epochs (SGPA 20 + 20): more of them learn sentences by heart",
        "50 (SGPA 20 + 30), as in the text; the authors' code has 100",
        ("optim.epochs=50", "stage2.epochs=30"),
    ),
    Alternative(
        ("cola",),
        "model.dropout",
        "dropout 0.4, and nine in ten learned embeddings of words are dropped: the language model is read",
        "dropout 0.1 of single numbers",
        ("model.dropout=0.1", "model.embedding.drop=0"),
    ),
    Alternative(
        ("cola",),
        "task.tokens",
        "the corpus's own tokens: lower case, marks apart, which the language model reads too",
        "sentences split at white space, cased, as in the authors' code",
        ("task.tokens=raw",),
    ),
    Alternative(
        ("zinc",),
        "task.identifiers",
        "nodes are told apart by Laplacian eigenvectors, and by chances of walks to return: these see rings",
        "by random orthogonal features, as in TokenGT's code: predictions are then random",
        ("task.identifiers=orthogonal",),
    ),
    Alternative(
        ("zinc",),
        "model.embedding.endpoint_types",
        "edges know the atoms that they join",
        "they know their bond and the identifiers of its ends, as in TokenGT",
        ("model.embedding.endpoint_types=false",),
    ),
    Alternative(
        ("zinc",),
        "model.pooling",
        "a sum over tokens, as the property is one over atoms: uncertainty then grows with the graph",
        "the mean over tokens: noise averages away, and answers about huge graphs are the surest",
        ("model.pooling=mean",),
    ),
    Alternative(
        ("zinc",),
        "optim.epochs",
        "300 epochs (SGPA 60 + 240) with a learning rate from 1e-3",
        "500 (SGPA 100 + 400) with a learning rate from 4e-4, as printed: it learns more slowly",
        (
            *("optim.epochs=500", "optim.lr=4e-4", "optim.final_lr=2e-6"),
            *("stage1.epochs=100", "stage1.lr=4e-4", "stage1.final_lr=2e-6"),
            *("stage2.epochs=400", "stage2.lr=4e-4", "stage2.final_lr=2e-6"),
        ),
    ),
    Alternative(
        PAPER,
        "sngp.predictive",
        "ten samples of the logits, as the text has it",
        "the mean-field formula of SNGP's own code",
        ("sngp.predictive=mean-field",),
    ),
    Alternative(
        (*CIFAR, "imdb"),
        "kflla.prior",
        "the prior precision of the Laplace approximation has the best validation NLL",
        "it has the best marginal likelihood, which left the digits underconfident",
        ("kflla.prior=marginal-likelihood",),
    ),
    Alternative(
        tuple(name for name in PAPER if name != "zinc"),
        "kflla.predictive",
        "probit, the usual choice for last-layer Laplace; the text does not say",
        "ten samples of the logits",
        ("kflla.predictive=monte-carlo",),
    ),
)


def alternatives(recipe: str) -> list[Alternative]:
    """The open questions of a recipe."""
    return [reading for reading in ALTERNATIVES if recipe in reading.recipes]

import numpy as np


class Runner:
    """Its log is no attribute"""

    def __setstate__(self, state):
        self.logged = state.pop("log", None)
        self.__dict__.update(state)


def total(_, records):
    return str(np.asarray(records).tolist())


def keep(_, x):
    return x


def same(_, x):
    return bool((x == x.copy()).all())

"""What anybody may know: names of Python's, torch's and numpy's, and phrases that these put around texts.

Everything that is not in here is somebody's own.
"""

from __future__ import annotations

import re

from rpcinspect.pickles.safe_names import DANGEROUS, EXCEPTION_NAMES, HELPERS
from rpcinspect.pickles.safe_names import VALUES as KNOWN_VALUES
from rpcinspect.pickles.semantic import RECEIVERS
from rpcinspect.pickles.shapes import RULES


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


PYTHON = _names(
    """
    abc array ast asyncio base64 bisect builtins codecs collections concurrent contextlib copy copyreg
    copy_reg ctypes dataclasses datetime decimal enum errno exceptions fractions functools gc glob heapq
    importlib inspect io ipaddress itertools json logging marshal math mmap multiprocessing operator os
    pathlib pickle posix posixpath random re shutil signal socket string struct subprocess sys tempfile
    threading time traceback types typing uuid warnings weakref zipfile zlib __builtin__ _codecs
    _collections _io _operator _random _thread numpy
    """
)
"""Modules of Python's own, and numpy, by the first part of their name."""

PACKAGES = _names(
    """
    asyncio cloudpickle collections concurrent ctypes dill distutils http importlib joblib json logging
    multiprocessing numpy os pathlib pip requests setuptools sqlite3 urllib urllib2
    """
)
"""Those that have modules inside; `re.x` would be a folder of somebody."""

AMBIGUOUS = _names(
    """
    code codeop commands doctest fileinput linecache platform profile pty resource sched site timeit trace
    unittest webbrowser
    """
)
"""Modules of Python's whose names users give to files of their own."""

TORCH = _names(
    """
    _C _awaits _classes _compile _custom_ops _decomp _deploy _dispatch _dynamo _export _functorch
    _guards _higher_order_ops _inductor _jit_internal _lazy _library _linalg_utils _lobpcg _logging _lowrank
    _meta_registrations _namedtensor_internals _numpy _ops _prims _prims_common _python_dispatcher _refs
    _sources _storage_docs _streambase _strobelight _subclasses _tensor _tensor_docs _tensor_str
    _thread_safe_fork _torch_docs _utils _utils_internal _vmap_internals _weights_only_unpickler
    accelerator amp ao autograd
    backends compiler contrib cpu cuda distributed distributions export fft func functional futures fx hub
    jit library linalg masked monitor mps mtia multiprocessing nativert nested nn onnx ops optim overrides
    package profiler quantization quasirandom random return_types serialization signal sparse special storage
    testing torch_version types utils version xpu
    """
)
"""The second part of the names of torch's modules: one that is not in here may be anybody's."""

KNOWN_MODULES = (
    frozenset(text.partition(".")[0] for text in (*map(str, (*KNOWN_VALUES, *RULES, *HELPERS)), *DANGEROUS))
    - {"torch"}
    - AMBIGUOUS
)

COMPONENTS = frozenset(
    {
        *(b"__main__", b"__mp_main__", b"__torch__", b"<locals>", b"<lambda>", b"<module>"),
        *(b"__init__", b"__call__", b"__new__"),
    }
)
"""Parts of dotted names that Python and TorchScript give themselves."""

EXCEPTIONS = frozenset(name.encode() for name in EXCEPTION_NAMES)
"""Names of Python's exceptions."""

DEVICE = re.compile(rb"(?:cpu|cuda|meta|mps|xla|xpu|hpu|ipu|mtia|privateuseone)(?::-?\d{1,4})?")
TYPE = re.compile(rb"(?:List|Dict|Tuple|Optional|Union|Future|RRef|Set)\[.*\]", re.DOTALL)
"""A type tag of TorchScript."""
TYPE_WORDS = frozenset(
    b"""
    List Dict Tuple Optional Union Future RRef Set Any NoneType None str int float bool complex number Tensor
    Device Stream Generator PyObject Layout ScalarType MemoryFormat QScheme Storage
    """.split()
)
SCHEMA = re.compile(rb"aten::[a-z_0-9]{1,80}(?:\.[A-Za-z_0-9]{1,80})?\([\w \[\],.=?!*|<>()>:\"'+-]{0,2000}")
"""Of an operator of torch's own: types, names and defaults of its arguments are in torch's source."""
OPERATOR = re.compile(rb"torch\.ops\.aten\.[a-z_0-9]{1,80}")
NUMPY_TYPE = re.compile(rb"[|<>=]|[|<>=]?[biufcSUVOmM]\d{0,3}")

VALUES = frozenset(name.encode() for name in RECEIVERS) | {b"latin1", b"PyObject", b"Tensor"}
"""Strings by which torch and Python say how something is to be made again."""
TABLE = frozenset({b"storage", b"conj", b"neg"})
"""Strings of tensor tables."""

PHRASES = rb"""
    [Ee]rror\ on\ [Nn]ode\ \d{1,5}:
  | RPCErr:\d{1,3}:
  | RPC\ ran\ for\ more\ than\ set\ timeout\ \(\d{1,12}\ ms\)\ and\ will\ now\ be\ marked\ with\ an\ error
  | The\ following\ operation\ failed\ in\ the\ TorchScript\ interpreter
  | Traceback\ \(most\ recent\ call\ last\): | Traceback\ of\ TorchScript
  | During\ handling\ of\ the\ above\ exception,\ another\ exception\ occurred:
  | File\ " | ",\ line\ \d{1,7}(?:,\ in\ )? | \blines?\ \d{1,7}
  | Exception\ raised\ from | \(most\ recent\ call\ first\): | C\+\+\ CapturedTraceback: | \ from\ (?=\S+:\d)
  | [\\/](?:site-packages|dist-packages|lib/python\d\.\d{1,2})(?=[\\/])
  | [\\/]torch[\\/](?:_utils|autograd|distributed|functional|jit|nn|optim|testing|utils)(?=[\\/.])
  | \.(?:pyx?|cpp|cc|cuh?|hpp|h|so|pt)\b
  | EOF:\ end\ of\ file | \b(?:eof|pipe\ closed)\b
  | \(this\ error\ originated\ at\ tensorpipe/[a-z_/]{1,60}\.(?:cc|h):\d{1,6}\)
  | (?:Request|Response)\ device\ mapping\ is\ not\ available\ for\ destination
  | TensorPipe\ RPC\ backend\ only\ supports\ CPU\ tensors\ by\ default
  | (?:found\ tensor\ on\ device:|for\ device)\ (?:cpu|cuda|meta|mps|xla|xpu|hpu|mtia)(?::\d{1,4})?\b
  | needed\ for\ gradient\ computation\ has\ been\ modified\ by\ an\ inplace\ operation
  | aten::[a-z_0-9]{1,80}
  | __start_profile | __stop_profile | \#remote_op:\ | \brpc_(?:sync|async|remote|async_jit)\#
  | \bbuiltins\.(?=[A-Z]) | __main__ | __mp_main__ | __torch__
  | <locals> | <lambda> | <module> | <frozen\ (?=[a-z_.]{1,60}>)
  | (?:\\){1,16}[nrt'"]
"""
"""What torch and Python write around the texts of others, for a verbose regular expression."""

PASSING = rb"""
    0x[0-9a-fA-F]+
  | \[(?=[\da-fA-F]{0,4}:)[\da-fA-F:.]{2,45}\](?::\d{1,5})?
  | \b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b
  | \blocalhost:\d{1,5}
  | GloballyUniqueId\([a-z_=,\ \d]{0,80}\)
  | \b(?:id|Id|ID|pid|PID|thread|process|[Pp]ort)\ ?[:=]?\ ?-?\d+
  | (?<=\.py|.\.h|\.cc|cpp|\.cu):\d{1,7}
"""
"""Numbers that are others in each run and say nothing: they become zeros."""

NATIVE = rb"""
    frame\ \#\d{1,4}:\ (?:(?!\\n)[^\n])*
"""
"""Frames of C++, of which no more is kept than that they are there."""


def is_public(module: str) -> bool:
    """Whether a module is Python's, torch's or another one that everybody knows."""
    first, _, rest = module.partition(".")
    if first == "torch":
        return not rest or rest.partition(".")[0] in TORCH
    return (first in PYTHON or first in KNOWN_MODULES) and (not rest or first in PACKAGES)

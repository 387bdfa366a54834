"""The names that `safety` knows: those that only make data, and some that certainly do more.

Exact names, checked one by one: neither importing nor calling a plain one runs code that its arguments
choose. Extend PLAIN on that condition only; numpy's random generators, for one, call a class of the pickle.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BUILTINS = _names(
    """
    object int long float complex bool str unicode bytes bytearray list tuple dict set frozenset slice range
    xrange NotImplemented Ellipsis
    """
)
_EXCEPTIONS = _names(
    """
    BaseException Exception GeneratorExit KeyboardInterrupt SystemExit ArithmeticError AssertionError
    AttributeError BlockingIOError BrokenPipeError BufferError ChildProcessError ConnectionAbortedError
    ConnectionError ConnectionRefusedError ConnectionResetError EOFError EnvironmentError ExceptionGroup
    FileExistsError FileNotFoundError FloatingPointError IOError ImportError IndentationError IndexError
    InterruptedError IsADirectoryError KeyError LookupError MemoryError ModuleNotFoundError NameError
    NotADirectoryError NotImplementedError OSError OverflowError PermissionError ProcessLookupError
    RecursionError ReferenceError RuntimeError StandardError StopAsyncIteration StopIteration SyntaxError
    SystemError TabError TimeoutError TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError
    UnicodeError UnicodeTranslateError ValueError ZeroDivisionError Warning BytesWarning DeprecationWarning
    EncodingWarning FutureWarning ImportWarning PendingDeprecationWarning ResourceWarning RuntimeWarning
    SyntaxWarning UnicodeWarning UserWarning
    """
)
_DTYPES = _names(
    """
    float16 float32 float64 half float double bfloat16 complex32 complex64 complex128 cfloat cdouble chalf
    bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 short int long qint8 qint32 quint8 quint4x2
    quint2x4 bit bits8 bits16 bits1x8 bits2x4 bits4x2 uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2
    int3 int4 int5 int6 int7 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
    float4_e2m1fn_x2
    """
)
_TORCH = _names(
    """
    device Size Tensor strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged
    contiguous_format channels_last channels_last_3d preserve_format per_tensor_affine per_tensor_symmetric
    per_channel_affine per_channel_symmetric per_channel_affine_float_qparams ByteStorage CharStorage
    ShortStorage IntStorage LongStorage HalfStorage FloatStorage DoubleStorage BFloat16Storage BoolStorage
    ComplexFloatStorage ComplexDoubleStorage QInt8Storage QUInt8Storage QInt32Storage QUInt4x2Storage
    QUInt2x4Storage
    """
)
_TORCH_UTILS = _names(
    """
    _rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_sparse_tensor _rebuild_qtensor
    _rebuild_parameter _rebuild_parameter_with_state _rebuild_meta_tensor_no_storage _rebuild_nested_tensor
    """
)
_PATHS = _names("PurePath PurePosixPath PureWindowsPath Path PosixPath WindowsPath")
_MULTIARRAY = _names("_reconstruct scalar")

PLAIN: dict[str, frozenset[str]] = {
    "builtins": _BUILTINS | _EXCEPTIONS,
    "__builtin__": _BUILTINS,
    "exceptions": _EXCEPTIONS,
    "collections": _names("OrderedDict defaultdict deque Counter ChainMap UserDict UserList UserString"),
    "datetime": _names("date datetime time timedelta timezone"),
    "decimal": _names("Decimal"),
    "fractions": _names("Fraction"),
    "functools": _names("partial"),
    "ipaddress": _names("IPv4Address IPv4Network IPv6Address IPv6Network"),
    "pathlib": _PATHS,
    "pathlib._local": _PATHS,
    "types": _names("SimpleNamespace"),
    "uuid": _names("UUID SafeUUID"),
    "numpy": _names("ndarray dtype"),
    "numpy.core.multiarray": _MULTIARRAY,
    "numpy._core.multiarray": _MULTIARRAY,
    "numpy.core.numeric": _names("_frombuffer"),
    "numpy._core.numeric": _names("_frombuffer"),
    "torch": _DTYPES | _TORCH,
    "torch._C._distributed_rpc": _names("WorkerInfo"),
    "torch._tensor": _names("Tensor"),
    "torch._utils": _TORCH_UTILS,
    "torch.distributed.nn.api.remote_module": _names("_remote_module_receiver RemoteModule"),
    "torch.distributed.rpc.internal": _names("PythonUDF RemoteException _InternalRPCPickler"),
    "torch.nn.parameter": _names("Parameter Buffer"),
    "torch.serialization": _names("_get_layout"),
}
"""Names that neither do nor allow more than making data, by the module that pickles name them by."""

OPTIMIZERS: dict[str, frozenset[str]] = {
    "torch.distributed.optim.functional_adadelta": _names("_FunctionalAdadelta"),
    "torch.distributed.optim.functional_adagrad": _names("_FunctionalAdagrad"),
    "torch.distributed.optim.functional_adam": _names("_FunctionalAdam"),
    "torch.distributed.optim.functional_adamax": _names("_FunctionalAdamax"),
    "torch.distributed.optim.functional_adamw": _names("_FunctionalAdamW"),
    "torch.distributed.optim.functional_rmsprop": _names("_FunctionalRMSprop"),
    "torch.distributed.optim.functional_rprop": _names("_FunctionalRprop"),
    "torch.distributed.optim.functional_sgd": _names("_FunctionalSGD"),
    "torch.optim.adadelta": _names("Adadelta"),
    "torch.optim.adagrad": _names("Adagrad"),
    "torch.optim.adam": _names("Adam"),
    "torch.optim.adamax": _names("Adamax"),
    "torch.optim.adamw": _names("AdamW"),
    "torch.optim.asgd": _names("ASGD"),
    "torch.optim.nadam": _names("NAdam"),
    "torch.optim.radam": _names("RAdam"),
    "torch.optim.rmsprop": _names("RMSprop"),
    "torch.optim.rprop": _names("Rprop"),
    "torch.optim.sgd": _names("SGD"),
    "torch.optim.sparse_adam": _names("SparseAdam"),
}
"""What may be named as an argument beside plain data: DistributedOptimizer names the class to be made. A
pickle that makes one itself is told of nevertheless."""

COLLECTORS = _names("list set deque UserList")
"""Plain names whose objects may get items by APPENDS or ADDITEMS. Loading calls `extend`, `append` or `add`
of others too, and some have attributes of the pickle's choice: SimpleNamespace(append=…)."""

DANGEROUS = _names(
    """
    os posix nt subprocess commands pty platform signal multiprocessing threading _thread asyncio concurrent
    sched ctypes _ctypes cffi resource webbrowser

    io _io shutil tempfile fileinput glob linecache mmap fcntl socket _socket ssl http urllib urllib2 ftplib
    smtplib requests zipfile tarfile sqlite3 logging.config

    builtins.eval builtins.exec builtins.compile builtins.open builtins.input builtins.breakpoint
    builtins.setattr builtins.delattr builtins.vars builtins.globals builtins.locals __builtin__.eval
    __builtin__.execfile __builtin__.compile __builtin__.open __builtin__.file __builtin__.input
    __builtin__.setattr __builtin__.apply code codeop types operator _operator functools.reduce inspect gc
    sys timeit cProfile profile pdb bdb trace doctest unittest pydoc

    importlib imp runpy pkgutil zipimport zipapp pip setuptools distutils venv ensurepip site pickle _pickle
    cPickle dill cloudpickle joblib marshal shelve copyreg copy_reg numpy.load numpy.f2py numpy.distutils
    numpy.testing torch.load torch.jit.load torch.hub torch.serialization.load
    torch.storage._load_from_bytes torch.ops torch.classes torch.utils.cpp_extension torch.package
    torch.multiprocessing torch.distributed.nn.api.remote_module._recursive_script_module_receiver
    torch.distributed.rpc.internal
    """
)
"""Modules and names that are errors even where they are only named: processes and the system, files and the
network, code, imports and loaders. Not meant to be complete."""

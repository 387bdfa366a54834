"""The names that may pass in a pickle, and what each may be used for. Data only; `judge` walks, `shapes`
checks.

Exact names, added one by one. A name passes for one use and no other:

* `VALUES` may be given to anybody: types of plain data, dtypes, exceptions, operators of arithmetic, the
  layers and optimizers of torch that jobs send as classes. Whoever gets one may call it, so that
  `functools.partial`, which would choose the arguments, takes none of them.
* the keys of `shapes.RULES` may be called while a pickle is loaded, with what their type's own pickling
  writes.
* `HELPERS` may be the function of a request, and nothing else: by these torch's own Python code uses RPC.
  What they are called with is judged by `replayer.planning.torch_helpers`.

`DANGEROUS` allows and refuses nothing: it only tells the audit which names are worse than somebody's own.
"""

from __future__ import annotations

from rpcinspect.pickles.tree import Global


def words_of(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def _globals(table: dict[str, frozenset[str]]) -> frozenset[Global]:
    """Names by their modules; a key may be several modules that have the same names."""
    found = (
        (module, name) for modules, names in table.items() for module in modules.split() for name in names
    )
    return frozenset(Global(module, name) for module, name in found)


EXCEPTION_NAMES = words_of(
    """
    BaseException BaseExceptionGroup Exception ExceptionGroup GeneratorExit KeyboardInterrupt SystemExit
    ArithmeticError AssertionError AttributeError BlockingIOError BrokenPipeError BufferError
    ChildProcessError ConnectionAbortedError ConnectionError ConnectionRefusedError ConnectionResetError
    EOFError EnvironmentError FileExistsError FileNotFoundError FloatingPointError IOError ImportError
    IndentationError IndexError InterruptedError IsADirectoryError KeyError LookupError MemoryError
    ModuleNotFoundError NameError NotADirectoryError NotImplementedError OSError OverflowError PermissionError
    ProcessLookupError RecursionError ReferenceError RuntimeError StopAsyncIteration StopIteration SyntaxError
    SystemError TabError TimeoutError TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError
    UnicodeError UnicodeTranslateError ValueError ZeroDivisionError Warning BytesWarning DeprecationWarning
    EncodingWarning FutureWarning ImportWarning PendingDeprecationWarning ResourceWarning RuntimeWarning
    SyntaxWarning UnicodeWarning UserWarning
    """
)
_BUILTIN_TYPES = words_of(
    """
    object int float complex bool str bytes bytearray list tuple dict set frozenset slice range
    NotImplemented Ellipsis
    """
)
_DTYPES = words_of(
    """
    float16 float32 float64 half float double bfloat16 complex32 complex64 complex128 cfloat cdouble chalf
    bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 short int long qint8 qint32 quint8 quint4x2
    quint2x4 bit bits8 bits16 bits1x8 bits2x4 bits4x2 uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2
    int3 int4 int5 int6 int7 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
    float4_e2m1fn_x2
    """
)
_TORCH = words_of(
    """
    device Size Tensor strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged
    contiguous_format channels_last channels_last_3d preserve_format per_tensor_affine per_tensor_symmetric
    per_channel_affine per_channel_symmetric per_channel_affine_float_qparams
    """
)
_ARITHMETIC = words_of(
    """
    add sub mul truediv floordiv mod pow matmul neg pos abs and_ or_ xor invert lshift rshift eq ne lt le gt
    ge not_ truth is_ is_not getitem contains index concat
    """
)
_NUMPY_TYPES = words_of(
    """
    dtype bool bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64
    complex64 complex128 str_ bytes_ datetime64 timedelta64
    """
)
_LAYERS: dict[str, frozenset[str]] = {
    "activation": words_of(
        "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish "
        "PReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmin Softplus Softshrink Softsign Tanh Tanhshrink "
        "Threshold"
    ),
    "container": words_of("ModuleDict ModuleList ParameterList Sequential"),
    "dropout": words_of("Dropout"),
    "flatten": words_of("Flatten Unflatten"),
    "linear": words_of("Identity Linear"),
    "loss": words_of(
        "BCELoss BCEWithLogitsLoss CosineEmbeddingLoss CrossEntropyLoss HingeEmbeddingLoss HuberLoss "
        "KLDivLoss L1Loss MSELoss MarginRankingLoss NLLLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss"
    ),
    "normalization": words_of("LayerNorm RMSNorm"),
    "sparse": words_of("Embedding"),
}
LAYERS = _globals({f"torch.nn.modules.{module}": names for module, names in _LAYERS.items()})
"""Layers of torch that jobs name as the class of a remote module, and that no arguments and tensors of a
capture were seen to crash, forward and backward. Convolutions, pooling, recurrent cells, EmbeddingBag and
others were: they need `--allow`."""

OPTIMIZERS = _globals(
    {
        **{
            f"torch.distributed.optim.functional_{name.lower()}": words_of(f"_Functional{name}")
            for name in ("Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "RMSprop", "Rprop", "SGD")
        },
        **{
            f"torch.optim.{name.lower()}": words_of(name)
            for name in (
                *("Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop"),
                *("Rprop", "SGD"),
            )
        },
        "torch.optim.sparse_adam": words_of("SparseAdam"),
    }
)
"""DistributedOptimizer names the class that is to be made."""

EXCEPTIONS = _globals(
    {
        "builtins": EXCEPTION_NAMES,
        "torch": words_of("OutOfMemoryError AcceleratorError"),
        "torch._C": words_of("AcceleratorError JITException OutOfMemoryError _LinAlgError"),
        "torch.cuda": words_of("OutOfMemoryError"),
        "torch._C._distributed_c10d torch.distributed": words_of(
            "DistBackendError DistError DistNetworkError DistStoreError DistQueueEmptyError"
        ),
        "concurrent.futures._base": words_of("CancelledError TimeoutError"),
        "decimal": words_of("InvalidOperation DivisionByZero"),
        "_pickle pickle": words_of("PickleError PicklingError UnpicklingError"),
        "_queue": words_of("Empty"),
        "queue": words_of("Empty Full"),
        "json.decoder": words_of("JSONDecodeError"),
        "socket": words_of("gaierror herror timeout"),
        "struct": words_of("error"),
        "subprocess": words_of("CalledProcessError SubprocessError TimeoutExpired"),
        "zlib": words_of("error"),
    }
)
"""What the answer of a failed call may name: torch calls it with the text of the failure."""

VALUES = (
    _globals(
        {
            "builtins": _BUILTIN_TYPES,
            "collections": words_of(
                "OrderedDict defaultdict deque Counter ChainMap UserDict UserList UserString"
            ),
            "datetime": words_of("date datetime time timedelta timezone"),
            "decimal": words_of("Decimal"),
            "fractions": words_of("Fraction"),
            "numpy": _NUMPY_TYPES,
            "operator _operator": _ARITHMETIC,
            "pathlib pathlib._local": words_of(
                "PurePath PurePosixPath PureWindowsPath Path PosixPath WindowsPath"
            ),
            "torch": _DTYPES | _TORCH,
            "torch._tensor": words_of("Tensor"),
            "torch.nn.parameter": words_of("Parameter"),
            "uuid": words_of("UUID"),
        }
    )
    | EXCEPTIONS
    | LAYERS
    | OPTIMIZERS
) - _globals({"builtins": words_of("UnicodeDecodeError UnicodeEncodeError UnicodeTranslateError")})
"""What may be a value, an item, an attribute or a state."""

OPTIMIZER_MODULE = "torch.distributed.optim.optimizer"
MAKE_OPTIMIZERS = _globals(
    {
        OPTIMIZER_MODULE: words_of(
            "_new_local_optimizer _new_script_local_optimizer _new_functional_local_optimizer"
        )
    }
)
"""By these DistributedOptimizer makes its part on an owner, from a class and RRefs of parameters."""
STEP_OPTIMIZERS = _globals(
    {
        OPTIMIZER_MODULE: words_of(
            "_local_optimizer_step _script_local_optimizer_step _functional_local_optimizer_step"
        )
    }
)
"""By these it steps: with the RRef of that part, and the context whose gradients are meant. Optimizers that
have a functional form are TorchScript up to torch 2.13, and Python from 2.14 on."""

HELPERS = (
    _globals(
        {
            "_remote_module_non_scriptable": words_of("_remote_forward"),
            "torch._C._distributed_autograd": words_of("get_gradients"),
            "torch.distributed.nn.api.remote_module": words_of(
                "_create_module _create_module_with_interface _instantiate_template _param_rrefs"
            ),
            "torch.distributed.rpc.api": words_of(
                "_rref_typeof_on_owner _rref_typeof_on_user get_worker_info"
            ),
            "torch.distributed.rpc.rref_proxy": words_of("_local_invoke _local_invoke_async_execution"),
        }
    )
    | MAKE_OPTIMIZERS
    | STEP_OPTIMIZERS
)
"""Functions of torch's own Python code that it calls by RPC (torch 2.2 to 2.15)."""

GENERATED = frozenset(Global("_remote_module_non_scriptable", name) for name in ("forward", "forward_async"))
"""The methods that torch writes for RemoteModule; they travel inside of one, and nowhere else."""

DANGEROUS = words_of(
    """
    os posix nt subprocess commands pty platform signal multiprocessing threading _thread asyncio
    concurrent sched ctypes _ctypes cffi resource webbrowser _posixsubprocess atexit uuid._get_command_stdout

    io _io _pyio gzip bz2 lzma logging.FileHandler shutil tempfile fileinput glob linecache mmap fcntl
    socket _socket ssl http urllib urllib2 ftplib smtplib requests zipfile tarfile sqlite3 logging.config

    builtins.eval builtins.exec builtins.compile builtins.open builtins.input builtins.breakpoint
    builtins.setattr builtins.delattr builtins.vars builtins.globals builtins.locals builtins.__import__
    builtins.map builtins.filter builtins.apply builtins.execfile builtins.file __builtin__ code codeop
    types operator _operator functools.reduce inspect gc sys timeit cProfile profile pdb bdb trace doctest
    unittest pydoc

    importlib imp _imp typing.get_type_hints runpy pkgutil zipimport zipapp pip setuptools distutils venv
    ensurepip site pickle _pickle cPickle dill cloudpickle joblib marshal shelve copyreg copy_reg
    numpy.load numpy.f2py numpy.distutils numpy.testing numpy.fromfile numpy.memmap numpy.save numpy.savez
    numpy.savetxt numpy.loadtxt numpy.genfromtxt numpy.fromregex pandas.read_pickle pandas.eval torch.load
    torch.save torch.from_file torch.jit.load torch.hub torch.serialization.load torch.export.load
    torch.storage._load_from_bytes torch.ops torch.classes torch.utils.cpp_extension torch.package
    torch.utils.collect_env torch.utils.benchmark torch.fx.graph_module torch._inductor torch._dynamo
    torch.distributed.run torch.distributed.launch torch.distributed.launcher torch.distributed.elastic
    numpy.lib.npyio numpy.lib._npyio_impl torch.multiprocessing torch.distributed.nn.jit
    torch.testing._internal.distributed.rpc.jit.rpc_test.load_script_module_with_pickled_rref
    sympy.sympify sympy.core.sympify sympy.parsing yaml.load yaml.unsafe_load numexpr
    torch.distributed.nn.api.remote_module._recursive_script_module_receiver
    torch.distributed.rpc.internal
    """
)
"""Modules and names of processes and the system, files and the network, code, imports and loaders. Never
meant to be complete: nothing passes because it is not in here."""


ADDRESSES = frozenset({"__array_interface__", "__array_struct__", "__cuda_array_interface__"})
"""Attributes by which numpy, torch and others find an array's memory; objects get them from any mapping."""

HARMLESS = _globals(
    {
        "_thread threading": words_of("get_ident get_native_id"),
        "os posix": words_of("getpid getppid getenv cpu_count uname"),
        "platform": words_of("machine node platform python_version system"),
        "socket": words_of("gethostname getfqdn"),
        "_socket": words_of("gethostname"),
        "sys": words_of("getsizeof intern"),
    }
)
"""Of the modules in `DANGEROUS`, what jobs call to say where they are. It passes nowhere for that."""


def is_dangerous(name: Global) -> bool:
    """Whether a name, a module around it, or a part that a dotted name goes through is in `DANGEROUS`."""
    words, parts = str(name).split("."), name.name.split(".")
    if len(words) > MAX_PARTS or any(".".join(words[:n]) in DANGEROUS for n in range(1, len(words) + 1)):
        return True
    ends = range(1, len(parts) + 1)
    return not DANGEROUS.isdisjoint(parts[:-1]) or any(
        ".".join(parts[start:end]) in DANGEROUS for end in ends for start in range(end - 1)
    )


MAX_PARTS = 16
"""Of a name with its module; longer ones are dangerous."""


def is_special(name: str) -> bool:
    """Whether an attribute has a name of Python's own."""
    return name.startswith("__") and name.endswith("__")


def has_dunder(name: str) -> bool:
    """Whether a dotted name goes through `__this__`."""
    return any(map(is_special, name.split(".")))


STANDARD_LIBRARY = words_of(
    """
    __future__ _abc _aix_support _android_support _apple_support _ast _ast_unparse _asyncio _bisect
    _blake2 _bootsubprocess _bz2 _codecs _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr
    _codecs_tw _collections _collections_abc _colorize _compat_pickle _compression _contextvars _crypt
    _csv _ctypes _curses _curses_panel _datetime _dbm _decimal _dummy_thread _elementtree
    _frozen_importlib _frozen_importlib_external _functools _gdbm _hashlib _heapq _hmac _imp
    _interpchannels _interpqueues _interpreters _io _ios_support _json _locale _lsprof _lzma _markupbase
    _md5 _msi _multibytecodec _multiprocessing _opcode _opcode_metadata _operator _osx_support
    _overlapped _pickle _posixshmem _posixsubprocess _py_abc _py_warnings _pydatetime _pydecimal _pyio
    _pylong _pyrepl _queue _random _remote_debugging _scproxy _sha1 _sha2 _sha256 _sha3 _sha512 _signal
    _sitebuiltins _socket _sqlite3 _sre _ssl _stat _statistics _string _strptime _struct _suggestions
    _symtable _sysconfig _thread _threading_local _tkinter _tokenize _tracemalloc _types _typing _uuid
    _warnings _weakref _weakrefset _winapi _wmi _zoneinfo _zstd abc aifc annotationlib antigravity
    argparse array ast asynchat asyncio asyncore atexit audioop base64 bdb binascii binhex bisect
    builtins bz2 cProfile calendar cgi cgitb chunk cmath cmd code codecs codeop collections colorsys
    compileall compression concurrent configparser contextlib contextvars copy copyreg crypt csv ctypes
    curses dataclasses datetime dbm decimal difflib dis distutils doctest dummy_threading email encodings
    ensurepip enum errno faulthandler fcntl filecmp fileinput fnmatch formatter fractions ftplib
    functools gc genericpath getopt getpass gettext glob graphlib grp gzip hashlib heapq hmac html http
    idlelib imaplib imghdr imp importlib inspect io ipaddress itertools json keyword lib2to3 linecache
    locale logging lzma macpath mailbox mailcap marshal math mimetypes mmap modulefinder msilib msvcrt
    multiprocessing netrc nis nntplib nt ntpath nturl2path numbers opcode operator optparse os
    ossaudiodev parser pathlib pdb pickle pickletools pipes pkgutil platform plistlib poplib posix
    posixpath pprint profile pstats pty pwd py_compile pyclbr pydoc pydoc_data pyexpat queue quopri
    random re readline reprlib resource rlcompleter runpy sched secrets select selectors shelve shlex
    shutil signal site smtpd smtplib sndhdr socket socketserver spwd sqlite3 sre_compile sre_constants
    sre_parse ssl stat statistics string stringprep struct subprocess sunau symbol symtable sys sysconfig
    syslog tabnanny tarfile telnetlib tempfile termios textwrap this threading time timeit tkinter token
    tokenize tomllib trace traceback tracemalloc tty turtle turtledemo types typing unicodedata unittest
    urllib uu uuid venv warnings wave weakref webbrowser winreg winsound wsgiref xdrlib xml xmlrpc zipapp
    zipfile zipimport zlib zoneinfo
"""
)
"""The modules of the standard library: `sys.stdlib_module_names` of CPython 3.13, with those that 3.8 had and
those that came later; as data, so that what is said of a capture is the same everywhere."""

"""The names that generated pickles use, by what they are, and the attributes that code reads by name.

The lists are the test's own: what the gate has in its lists is the gate's matter.
"""

from __future__ import annotations

from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _table(text: str) -> tuple[str, ...]:
    """Lines of `module: name name …` as `module:name`; a line without a colon goes on with the one before."""
    found, module = [], ""
    for line in text.strip().splitlines():
        head, colon, rest = line.partition(": ")
        module = head.strip() if colon else module
        found += [f"{module}:{name}" for name in (rest if colon else line).split()]
    return tuple(found)


EXCEPTIONS = _table(
    """
    builtins: BaseException Exception GeneratorExit KeyboardInterrupt SystemExit ArithmeticError
        AttributeError KeyError ConnectionResetError FileNotFoundError ImportError IndexError MemoryError
        OSError RecursionError RuntimeError StopIteration SyntaxError TimeoutError TypeError
        UnicodeDecodeError ValueError Warning UserWarning
    """
)
DTYPES = _table(
    """
    torch: float32 float64 int64 bool uint8 bfloat16 complex64 quint8 qint32 float8_e4m3fn bits8 uint4
    """
)
OLD = tuple(
    sorted(
        {f"{module}:{name}" for module, name in NAME_MAPPING}
        | {
            f"{module}:{name}"
            for module in IMPORT_MAPPING
            for name in _words("fire getoutput Queue Popen set")
        }
    )
)
"""Names of Python 2, which protocols below 3 map."""
PLAIN_NAMES = (
    *_table(
        """
        builtins: object int float complex bool str bytes bytearray list tuple dict set frozenset slice range
            NotImplemented Ellipsis
        __builtin__: object int long float bool str unicode list tuple dict set frozenset xrange
        collections: OrderedDict defaultdict deque Counter ChainMap UserDict UserList UserString
        datetime: date datetime time timedelta timezone
        decimal: Decimal
        fractions: Fraction
        functools: partial
        ipaddress: IPv4Address IPv4Network IPv6Address IPv6Network
        pathlib: PurePath PurePosixPath PureWindowsPath Path PosixPath
        types: SimpleNamespace
        uuid: UUID SafeUUID
        numpy: ndarray dtype float32 int64 bool_ str_ datetime64
        numpy._core.multiarray: _reconstruct scalar
        numpy.core.multiarray: _reconstruct scalar
        numpy._core.numeric: _frombuffer
        torch: device Size Tensor strided sparse_coo sparse_csr contiguous_format channels_last
            per_tensor_affine per_channel_affine ByteStorage FloatStorage LongStorage BoolStorage
        torch._C._distributed_rpc: WorkerInfo
        torch._tensor: Tensor
        torch._utils: _rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_sparse_tensor
            _rebuild_qtensor _rebuild_parameter _rebuild_parameter_with_state _rebuild_meta_tensor_no_storage
            _rebuild_nested_tensor
        torch.distributed.nn.api.remote_module: _remote_module_receiver RemoteModule
        torch.distributed.rpc.internal: PythonUDF RemoteException _InternalRPCPickler
        torch.nn.parameter: Parameter Buffer
        torch.nn.modules.linear: Linear Identity
        torch.nn.modules.container: Sequential ModuleList
        torch.serialization: _get_layout
        operator: add getitem matmul mod concat
        """
    ),
    *EXCEPTIONS[:4],
    *DTYPES[:4],
)
"""What makes plain data where it is used for what it is there for."""
BY_RPC = _table(
    """
    torch.distributed.optim.optimizer: _new_local_optimizer _local_optimizer_step
        _new_script_local_optimizer _script_local_optimizer_step
        _new_functional_local_optimizer _functional_local_optimizer_step
    torch.distributed.rpc.api: _rref_typeof_on_owner _rref_typeof_on_user get_worker_info
    torch.distributed.nn.api.remote_module: _param_rrefs _create_module _create_module_with_interface
        _instantiate_template
    torch.distributed.rpc.rref_proxy: _local_invoke _local_invoke_async_execution
    torch._C._distributed_autograd: get_gradients
    _remote_module_non_scriptable: _remote_forward
    """
)
"""What torch's own code calls by rpc."""
OPTIMIZER_NAMES = _table(
    """
    torch.optim.sgd: SGD
    torch.optim.adam: Adam
    torch.distributed.optim.functional_sgd: _FunctionalSGD
    torch.distributed.optim.functional_adam: _FunctionalAdam
    """
)
JUDGED = _table(
    """
    builtins: getattr
    __builtin__: getattr
    _codecs: encode
    copyreg: _reconstructor
    copy_reg: _reconstructor
    torch._tensor: _rebuild_from_type_v2
    """
)
USERS = _table(
    """
    job: step twice _hidden without_grad decorated square alias alias_of_alias own_alias table number Net
        Item Plain Bare Stateful Color Pair Record Words Table conditional replaced deleted item made_up
        fire canary torch under_another_name Item.run Item.static Item.make Item._secret Item.inherited
        Item.inherited_static Item.go Item.shout Item.Inner Item.Inner.deep Item.name Bare.inherited
        step.__globals__ Item.__init__ canary.fire Net.forward Net.load_state_dict Color.RED
        Record.__init__ dataclasses enum typing torch.load Server Server.run
    """
)
USERS_GOOD = _table(
    """
    job: step twice Net Server Plain Stateful Color Pair Record Words Table
    """
)
CANARIES = _table(
    """
    canary: fire Base Other Base.inherited decorate Other.other
    """
)
DANGEROUS = _table(
    """
    os: system
    posix: system
    subprocess: Popen getoutput
    builtins: eval exec __import__ map filter type setattr vars open property super classmethod enumerate
        zip min sorted repr
    operator: attrgetter methodcaller itemgetter call add
    functools: reduce partialmethod cached_property lru_cache
    itertools: starmap accumulate chain
    copyreg: add_extension __newobj__ _slotnames pickle
    types: FunctionType CodeType MethodType new_class DynamicClassAttribute ModuleType CellType
    weakref: finalize ref
    atexit: register
    threading: Thread
    pickle: loads
    _pickle: loads
    marshal: loads
    importlib: import_module
    runpy: run_path
    ctypes: CDLL
    numpy: load fromfile memmap vectorize apply_along_axis
    numpy.ctypeslib: as_array
    torch: load save UntypedStorage
    torch.jit: load
    torch.hub: load
    torch.storage: _load_from_bytes UntypedStorage
    torch._utils: _rebuild_wrapper_subclass _set_obj_state _rebuild_device_tensor_from_numpy
    torch.utils.data: DataLoader
    torch.ops: load_library
    torch.distributed.rpc.internal: deserialize _run_function
    torch.distributed.rpc.rref_proxy: _local_invoke _local_invoke_async_execution
    torch.distributed.nn.api.remote_module: _instantiate_template _create_module
        _recursive_script_module_receiver
    torch.distributed.rpc: rpc_sync
    torch._C: _load_for_lite_interpreter
    enum: Enum _decompose
    collections: namedtuple
    dataclasses: make_dataclass
    collections.abc: Mapping
    typing: NamedTuple
    string: Formatter
    timeit: timeit
    code: interact
    logging.config: dictConfig
    multiprocessing.reduction: _rebuild_partial
    unittest.mock: Mock
    xmlrpc.client: ServerProxy
    http.client: HTTPConnection
    urllib.request: urlopen
    socket: socket
    tempfile: mktemp
    shutil: rmtree
    glob: glob
    linecache: getlines
    io: FileIO
    zoneinfo: ZoneInfo
    random: Random
    """
)
ATTRIBUTES = _words(
    """
    func args kwargs keywords keys items values get append extend add update detach requires_grad_ local_value
    step to parameters as_subclass clone data grad dtype device type shape size numel tolist _untyped_storage
    untyped_storage __torch_function__ __array__ __array_interface__ __array_struct__ __array_ufunc__
    __setstate__ __reduce__ __reduce_ex__ __getstate__ __deepcopy__ __copy__ __getnewargs_ex__ __new__
    __init__ __class__ __dict__ __call__ __iter__ __len__ __getitem__ __hash__ __eq__ __repr__ __bool__
    __index__ __int__ __float__ __bytes__ __fspath__ __name__ __qualname__ __module__ __wrapped__ __getattr__
    __getattribute__ __set_name__ __prepare__ __missing__ __mro_entries__ __traceback__ __cause__ __context__
    __notes__ default_factory maps maxlen _backward_hooks _forward_hooks _forward_pre_hooks _modules
    _parameters _class_reducer_dict _dispatch_table _serialize _deserialize owner confirmed_by_owner is_owner
    param_groups state run other go inherited touch unlink read_text name args x
    """
)
METHODS = _words(
    """
    run _secret make static go shout inherited inherited_static inherited_class inherited_property name other
    forward load_state_dict __init__ __call__ __class__ __globals__ __reduce_ex__ touch unlink write_text
    Inner.deep x deserialize serialize _tensor_receiver _py_rref_receiver _script_module_receiver
    """
)
CODECS = _words(
    """
    latin1 utf-8 ascii idna rot13 hex zlib unicode_escape evil mbcs utf_7 os
    """
)
OF_TENSORS = _words(
    """
    tag data grad names requires_grad retains_grad grad_fn _grad _grad_fn _base _cdata _version
    _backward_hooks _post_accumulate_grad_hooks _is_param _has_symbolic_sizes_strides is_leaf output_nr real
    imag T layout shape
    """
)
"""What a parameter's state may name, and is no plain attribute of it."""

"""Pickles as torch 2.13 put them on the wire, cut from captures; shared by the tests of this folder."""

from __future__ import annotations

FORWARD_AUTOGRAD = (  # tail of a FORWARD_AUTOGRAD_REQ, device map {cpu: cpu}
    b"\x80\x02("
    b"M\x02\x01"  # wrapped type 0x102, PYTHON_CALL
    b"K\x00K\x00K\x00"  # context 0, message 0, from worker 0
    b"ctorch.jit._pickle\nrestore_type_tag\nq\x00"
    b"}(X\x03\x00\x00\x00cpuq\x01h\x01u"  # {"cpu": "cpu"}
    b"X\x0e\x00\x00\x00Dict[str, str]q\x02\x86Rq\x03"
    b"t."
)
BACKWARD = (  # BACKWARD_AUTOGRAD_REQ: gradient 0, context worker 1 #0, message 1, retain_graph False
    b"\x80\x02(ctorch.jit._pickle\nbuild_tensor_from_id\nq\x00(K\x00tRq\x01"
    b"\x8a\x08\x00\x00\x00\x00\x00\x00\x01\x00"
    b"K\x01\x89t."
)
USER_DELETE = b"\x80\x02K\x00K\x03\x86q\x00K\x00K\x05\x86q\x01\x86."  # RREF_USER_DELETE ((0, 3), (0, 5))
FETCH = b"\x80\x02K\x00K\x03\x86K\x01\x86."  # PYTHON_RREF_FETCH_CALL ((0, 3), 1)
CHILD_ACCEPT = b"\x80\x02K\x01K\x04\x86q\x00\x85."  # RREF_CHILD_ACCEPT ((1, 4),)
CLEANUP = b"\x80\x02K\x00."  # CLEANUP_AUTOGRAD_CONTEXT_REQ, context 0
FETCH_RET = (  # PYTHON_RREF_FETCH_RET: one tensor, and a Python pickle in a C++ string
    b"\x80\x02ctorch.jit._pickle\nbuild_tensor_from_id\nq\x00(K\x00tRq\x01"
    b"Xy\x00\x00\x00"
    b"\x80\x04\x95n\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins\x94\x8c\x07getattr\x94\x93\x94"
    b"\x8c\x1etorch.distributed.rpc.internal\x94\x8c\x13_InternalRPCPickler\x94\x93\x94"
    b"\x8c\x10_tensor_receiver\x94\x86\x94R\x94K\x00\x85\x94R\x94."
    b"q\x02\x86."
)
SCRIPT_CALL = (  # a TorchScript function of (Tensor, int, str, List[int], Dict[str, Tensor], None)
    b"\x80\x02(ctorch.jit._pickle\nbuild_tensor_from_id\nq\x00(K\x00tRq\x01"
    b"K\x03X\x03\x00\x00\x00keyq\x02"
    b"ctorch.jit._pickle\nbuild_intlist\nq\x03(](K\x01K\x02etRq\x04"
    b"ctorch.jit._pickle\nrestore_type_tag\nq\x05"
    b"}(X\x01\x00\x00\x00aq\x06h\x01X\x01\x00\x00\x00bq\x07h\x00(K\x01tRq\x08u"
    b"X\x11\x00\x00\x00Dict[str, Tensor]q\t\x86Rq\n"
    b"N\x89X\x1a\x00\x00\x00__torch__.__mp_main__.sfunq\x0bt."
)
SCRIPT_RREF = (  # SCRIPT_CALL with an RRef: owner 0, rref (0, 0), fork (1, 0), parent 1
    b"\x80\x02ctorch.distributed.rpc\nrref\nq\x00(K\x00K\x00K\x00K\x01K\x00K\x01"
    b"X\x06\x00\x00\x00Tensorq\x01tRq\x02"
    b"\x89X\x16\x00\x00\x00__torch__.__main__.addq\x03\x87."
)
PROFILING = (  # tail of a RUN_WITH_PROFILING_REQ: CPU profiler, id (1, worker 1 #0)
    b"\x80\x02M\x02\x01ctorch.jit._pickle\nrestore_type_tag\nq\x00](K\x01\x89\x89e"
    b"X\t\x00\x00\x00List[Any]q\x01\x86RK\x01\x8a\x08\x00\x00\x00\x00\x00\x00\x01\x00\x86\x87."
)
TENSORS = (  # tensor list of a message: one float tensor of shape [3] that requires grad
    b"\x80\x02ctorch.jit._pickle\nbuild_tensorlist\nq\x00(](ctorch._utils\n_rebuild_tensor_v2\nq\x01("
    b"(X\x07\x00\x00\x00storageq\x02ctorch\nFloatStorage\nq\x03X\x01\x00\x00\x000q\x04"
    b"X\x03\x00\x00\x00cpuq\x05K\x03tQq\x06"  # ("storage", FloatStorage, "0", "cpu", 3)
    b"K\x00(K\x03t(K\x01t\x88ccollections\nOrderedDict\nq\x07)RtRq\x08etR."
)
SPARSE = (  # tensor list with one COO tensor: indices in storage 0, values in storage 1
    b"\x80\x02ctorch.jit._pickle\nbuild_tensorlist\nq\x00(](ctorch._utils\n_rebuild_sparse_tensor\nq\x01("
    b"K\x01(K\x03K\x03t\x88ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\x00\x00\x00storageq\x03"
    b"ctorch\nLongStorage\nq\x04X\x01\x00\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06K\x06tQq\x07"
    b"K\x00(K\x02K\x03t(K\x03K\x01t\x89ccollections\nOrderedDict\nq\x08)RtR"
    b"h\x02((h\x03ctorch\nFloatStorage\nq\tX\x01\x00\x00\x001q\nh\x06K\x03tQq\x0b"
    b"K\x00(K\x03t(K\x01t\x89h\x08)RtRh\x08)RtRq\x0cetR."
)
JIT = {name: value for name, value in list(globals().items()) if name.isupper() and isinstance(value, bytes)}

CALL = (  # PYTHON_CALL without its first byte: fwd(RRef, tensor 0)
    b"\x80\x04\x95\xd6\x00\x00\x00\x00\x00\x00\x00"
    b"\x8c\x1etorch.distributed.rpc.internal\x94\x8c\tPythonUDF\x94\x93\x94"
    b"\x8c\x0b__mp_main__\x94\x8c\x03fwd\x94\x93\x94"
    b"\x8c\x08builtins\x94\x8c\x07getattr\x94\x93\x94h\x00\x8c\x13_InternalRPCPickler\x94\x93\x94"
    b"\x8c\x11_py_rref_receiver\x94\x86\x94R\x94"
    b"(K\x01K\x00K\x00K\x00K\x02K\x00\x8c\x08PyObject\x94t\x94\x85\x94R\x94"
    b"h\x08h\n\x8c\x10_tensor_receiver\x94\x86\x94R\x94K\x00\x85\x94R\x94"
    b"\x86\x94}\x94\x87\x94\x81\x94."
)
FAILURE = (  # PYTHON_RET of a function that raised; the text is shortened
    b"\x80\x04\x95n\x00\x00\x00\x00\x00\x00\x00"
    b"\x8c\x1etorch.distributed.rpc.internal\x94\x8c\x0fRemoteException\x94\x93\x94"
    b"\x8c\x1fOn WorkerInfo(id=1, name=worker\x94"
    b"\x8c\x08builtins\x94\x8c\nValueError\x94\x93\x94\x86\x94\x81\x94."
)
PYTHON = {"CALL": CALL, "FAILURE": FAILURE}

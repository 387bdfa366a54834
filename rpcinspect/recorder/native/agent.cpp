// An RPC agent that records: torch's TensorPipeAgent, which also puts each message that it sends as a request, and
// each answer that comes, into a queue of log records (docs/log-format.md) before it goes on its way.
//
// In: what torch makes its own agent of. Out: that agent, to be used like any. Everything is recorded at the caller's
// side, where both directions pass. Whatever goes wrong with recording is counted, and changes nothing for the job.

#include "queue.h"

#include <torch/csrc/distributed/rpc/request_callback_impl.h>
#include <torch/csrc/distributed/rpc/tensorpipe_agent.h>
#include <torch/csrc/distributed/rpc/tensorpipe_utils.h>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <map>

namespace rpcinspect {

namespace rpc = torch::distributed::rpc;
using rpc::JitFuture;
using rpc::Message;
using rpc::MessageType;
using rpc::TensorPipeAgent;
using rpc::WorkerInfo;
using MessagePtr = c10::intrusive_ptr<Message>;

// --- what is private in TensorPipeAgent, and tells what its errors do not ----------------------------------

// An explicit instantiation may name private members: no copy of the class' layout, no access by offset.
template <auto Pipes, auto PipesMutex, auto Addresses>
struct Private {
  friend auto& pipes_of(TensorPipeAgent& agent) {
    return agent.*Pipes;
  }
  friend auto& pipes_mutex_of(TensorPipeAgent& agent) {
    return agent.*PipesMutex;
  }
  friend auto& addresses_of(TensorPipeAgent& agent) {
    return agent.*Addresses;
  }
};
auto& pipes_of(TensorPipeAgent& agent);
auto& pipes_mutex_of(TensorPipeAgent& agent);
auto& addresses_of(TensorPipeAgent& agent);
template struct Private<
    &TensorPipeAgent::connectedPipes_,
    &TensorPipeAgent::connectedPipesMutex_,
    &TensorPipeAgent::workerNameToURL_>;

// Whether the connection over which this worker is called has broken; its agent then fails every call to it.
bool is_broken(TensorPipeAgent& agent, rpc::worker_id_t to) {
  std::lock_guard<std::mutex> guard(pipes_mutex_of(agent));
  auto found = pipes_of(agent).find(to);
  if (found == pipes_of(agent).end()) {
    return false;
  }
  std::lock_guard<std::mutex> pipe_guard(found->second.mutex_);
  return found->second.inError_;
}

// --- header lines ------------------------------------------------------------------------------------------

int64_t now_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", byte);
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Text of unknown origin as UTF-8: a byte that is none becomes a replacement character. Without Python, which may be
// gone when the last errors come.
std::string as_utf8(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto byte = [&](size_t n) { return static_cast<unsigned char>(text[n]); };
    const unsigned char first = byte(at);
    const size_t size = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    bool is_whole = size != 0 && at + size <= text.size();
    for (size_t n = 1; is_whole && n < size; ++n) {
      is_whole = (byte(at + n) & 0xc0) == 0x80;
    }
    if (is_whole && size > 2) { // neither overlong, nor a surrogate, nor beyond the last character
      const unsigned char second = byte(at + 1);
      is_whole = !(first == 0xe0 && second < 0xa0) && !(first == 0xed && second > 0x9f) &&
          !(first == 0xf0 && second < 0x90) && !(first == 0xf4 && second > 0x8f);
    }
    out += is_whole ? text.substr(at, size) : "\xef\xbf\xbd";
    at += is_whole ? size : 1;
  }
  return out;
}

std::string type_name(int type) {
  switch (type) {
#define RPCINSPECT_NAME(name) \
  case MessageType::name:     \
    return "\"" #name "\"";
    RPCINSPECT_NAME(SCRIPT_CALL)
    RPCINSPECT_NAME(SCRIPT_RET)
    RPCINSPECT_NAME(PYTHON_CALL)
    RPCINSPECT_NAME(PYTHON_RET)
    RPCINSPECT_NAME(SCRIPT_REMOTE_CALL)
    RPCINSPECT_NAME(PYTHON_REMOTE_CALL)
    RPCINSPECT_NAME(REMOTE_RET)
    RPCINSPECT_NAME(SCRIPT_RREF_FETCH_CALL)
    RPCINSPECT_NAME(PYTHON_RREF_FETCH_CALL)
    RPCINSPECT_NAME(SCRIPT_RREF_FETCH_RET)
    RPCINSPECT_NAME(PYTHON_RREF_FETCH_RET)
    RPCINSPECT_NAME(RREF_USER_DELETE)
    RPCINSPECT_NAME(RREF_FORK_REQUEST)
    RPCINSPECT_NAME(RREF_CHILD_ACCEPT)
    RPCINSPECT_NAME(RREF_ACK)
    RPCINSPECT_NAME(FORWARD_AUTOGRAD_REQ)
    RPCINSPECT_NAME(FORWARD_AUTOGRAD_RESP)
    RPCINSPECT_NAME(BACKWARD_AUTOGRAD_REQ)
    RPCINSPECT_NAME(BACKWARD_AUTOGRAD_RESP)
    RPCINSPECT_NAME(CLEANUP_AUTOGRAD_CONTEXT_REQ)
    RPCINSPECT_NAME(CLEANUP_AUTOGRAD_CONTEXT_RESP)
    RPCINSPECT_NAME(RUN_WITH_PROFILING_REQ)
    RPCINSPECT_NAME(RUN_WITH_PROFILING_RESP)
    RPCINSPECT_NAME(RREF_BACKWARD_REQ)
    RPCINSPECT_NAME(RREF_BACKWARD_RESP)
    RPCINSPECT_NAME(EXCEPTION)
#undef RPCINSPECT_NAME
    default:
      return std::to_string(type);
  }
}

std::string device_name(const c10::Device& device) {
  return device.is_cpu() ? "cpu" : device.str();
}

// --- a message as TensorPipe carries it ----------------------------------------------------------------------

struct StorageBytes {
  size_t length = 0;
  const void* data = nullptr; // null: left out
  std::string source = "cpu";
  std::string target = "cpu";
  at::Tensor copy; // of what lay on another device
};

struct Snapshot {
  std::string table;
  std::vector<at::Tensor> tensors; // keep the storages alive
  std::vector<StorageBytes> storages;
};

// The same calls of torch as in its tensorpipeSerialize, which itself wants TensorPipe's classes, and CUDA's headers
// to read what it made of a CUDA tensor.
std::string make_table(const std::vector<at::Tensor>& tensors, std::vector<at::Tensor>* data) {
  std::string table;
  torch::jit::Pickler pickler([&](const char* bytes, size_t size) { table.append(bytes, size); });
  pickler.protocol();
  pickler.pushIValue(tensors);
  pickler.stop();
  *data = pickler.tensorData();
  return table;
}

const std::string& empty_table() {
  static const std::string* table = [] {
    std::vector<at::Tensor> none;
    return new std::string(make_table({}, &none));
  }();
  return *table;
}

// All that the pickle of one plain tensor depends on; empty for others.
std::vector<int64_t> shape_of(const at::Tensor& tensor) {
  static const c10::DispatchKeySet plain = [] {
    c10::InferenceMode off(false);
    return at::empty({0}).key_set();
  }();
  if (tensor.key_set() != plain) { // a subclass, quantized, sparse, conjugated, named
    return {};
  }
  std::vector<int64_t> shape{int64_t(tensor.scalar_type()), tensor.requires_grad()};
  shape.push_back(tensor.storage_offset());
  shape.push_back(int64_t(tensor.storage().nbytes()));
  shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
  shape.insert(shape.end(), tensor.strides().begin(), tensor.strides().end());
  return shape;
}

// The tables of messages with one tensor: most have the shape of an earlier one, and pickling is most of what recording
// costs a small call.
class Tables {
 public:
  std::string make(const std::vector<at::Tensor>& tensors, std::vector<at::Tensor>* data) {
    const std::vector<int64_t> shape = tensors.size() == 1 ? shape_of(tensors.front()) : std::vector<int64_t>();
    if (shape.empty()) {
      return make_table(tensors, data);
    }
    std::lock_guard<std::mutex> guard(mutex_);
    const auto found = known_.find(shape);
    if (found != known_.end()) {
      *data = tensors;
      return found->second;
    }
    if (known_.size() >= kMost) {
      known_.clear();
    }
    return known_[shape] = make_table(tensors, data);
  }

 private:
  static constexpr size_t kMost = 256;
  std::mutex mutex_;
  std::map<std::vector<int64_t>, std::string> known_;
};

at::Tensor on_cpu(const c10::Storage& storage) {
  c10::NoGradGuard no_grad;
  auto options = at::TensorOptions().dtype(at::kByte).device(storage.device());
  return at::empty({0}, options).set_(storage, 0, {int64_t(storage.nbytes())}).cpu();
}

struct Limits {
  int64_t storage_bytes; // larger storages are left out; -1: none is
};

// False for what TensorPipe refuses to send.
bool take(
    const Message& message,
    const std::vector<c10::Device>& devices,
    const std::vector<c10::Stream>& streams,
    const Limits& limits,
    Tables& tables,
    Snapshot& snapshot) {
  if (message.tensors().empty()) {
    snapshot.table = empty_table();
    return true;
  }
  at::DisableRecordFunctionGuard unseen; // what is cloned here is in no profile of the job
  c10::MultiStreamGuard guard{c10::ArrayRef<c10::Stream>(streams)};
  snapshot.tensors = rpc::cloneSparseTensors(message.tensors()).vec();
  std::vector<at::Tensor> data;
  snapshot.table = tables.make(snapshot.tensors, &data);
  snapshot.storages.reserve(data.size());
  for (size_t i = 0; i < data.size(); ++i) {
    const c10::Storage& storage = data[i].storage();
    if (rpc::getDeviceTypeConverter(storage.device().type()) == nullptr) {
      return false;
    }
    StorageBytes bytes;
    bytes.length = storage.nbytes();
    bytes.source = device_name(storage.device());
    bytes.target = i < devices.size() ? device_name(devices[i]) : "cpu";
    const bool wanted = limits.storage_bytes < 0 || int64_t(bytes.length) <= limits.storage_bytes;
    if (wanted && bytes.length != 0) {
      if (storage.device().is_cpu()) {
        bytes.data = storage.data();
      } else {
        bytes.copy = on_cpu(storage);
        bytes.data = bytes.copy.data_ptr();
      }
    }
    snapshot.storages.push_back(std::move(bytes));
  }
  snapshot.tensors.insert(snapshot.tensors.end(), data.begin(), data.end());
  return true;
}

std::string storages_json(const std::vector<StorageBytes>& storages) {
  std::string out = "[";
  for (const StorageBytes& storage : storages) {
    out += out.size() == 1 ? "{\"length\":" : ",{\"length\":";
    const std::string length = std::to_string(storage.length);
    out += length + ",\"source\":\"" + storage.source + "\",\"target\":\"" + storage.target + "\"";
    if (storage.data == nullptr && storage.length != 0) {
      out += ",\"missing\":[[0," + length + "]]";
    }
    out += "}";
  }
  return out + "]";
}

// --- the recorder --------------------------------------------------------------------------------------------

struct Settings {
  Options queue;
  int64_t storage_bytes = -1;
  std::string job; // empty: told by the addresses of the workers
  int64_t way = 0;
};

constexpr size_t kMaxHeader = size_t(1) << 20;
constexpr size_t kMaxBody = size_t(1) << 31;

// What one agent records. Futures hold it, so that it outlives its agent where they do.
class Recorder {
 public:
  explicit Recorder(const Settings& settings, std::string self)
      : queue_(settings.queue), limits_{settings.storage_bytes}, way_(settings.way), self_(std::move(self)) {
    if (!settings.job.empty()) {
      set_job(settings.job);
    }
  }

  Queue& queue() {
    return queue_;
  }

  void set_job(const std::string& job) {
    job_ = job;
    where_ = ",\"job\":" + quoted(job) + (way_ == 0 ? "" : ",\"way\":" + std::to_string(way_));
  }
  bool has_job() const {
    return !where_.empty();
  }
  const std::string& job() const {
    return job_;
  }

  void worker(const std::string& name, int id, const std::string& url) {
    std::lock_guard<std::mutex> guard(workers_mutex_);
    if (!workers_.insert(id).second) {
      return;
    }
    std::string line = "{\"rpc\":\"worker\",\"name\":" + quoted(name) + ",\"id\":" + std::to_string(id) + where_;
    const std::string uv = "uv://";
    if (url.rfind(uv, 0) == 0) {
      line += ",\"addresses\":[" + quoted(url.substr(uv.size())) + "]";
    }
    line += "}\n";
    queue_.push({{line.data(), line.size()}}, false);
  }

  // `peer`: the other end; the message goes there, or comes from there.
  void message(
      const Message& message,
      int64_t id,
      const std::string& peer,
      bool is_request,
      const std::vector<c10::Device>& devices,
      const std::vector<c10::Stream>& streams,
      const std::function<void(Snapshot&)>& amend = nullptr) {
    Snapshot snapshot;
    if (!take(message, devices, streams, limits_, tables_, snapshot)) {
      return;
    }
    if (amend) {
      amend(snapshot);
    }
    put(message.type(), id, peer, is_request, message.payload().data(), message.payload().size(), snapshot);
  }

  // An EXCEPTION message, of which the caller gets the text.
  void exception(const std::string& text, int64_t id, const std::string& peer) {
    Snapshot snapshot;
    snapshot.table = empty_table();
    put(MessageType::EXCEPTION, id, peer, false, text.data(), text.size(), snapshot);
  }

  void failed(MessageType type, int64_t id, const std::string& peer, const char* reason, const std::string& text) {
    std::string line = "{\"rpc\":\"failed\",\"time_ns\":" + std::to_string(now_ns()) + ",\"src\":" + quoted(self_) +
        ",\"dst\":" + quoted(peer) + ",\"type\":" + type_name(type) + ",\"id\":" + std::to_string(id) + where_ +
        ",\"reason\":\"" + reason + "\",\"text\":" + quoted(as_utf8(text.substr(0, kMaxText))) + "}\n";
    queue_.count_failed();
    queue_.push({{line.data(), line.size()}}, false);
  }

  // A message that is not in the log, for whatever reason.
  void lost(const std::string& peer, bool is_request) {
    const std::string& from = is_request ? self_ : peer;
    const std::string& to = is_request ? peer : self_;
    queue_.note_loss(
        "{\"rpc\":\"lost\",\"src\":" + quoted(from) + ",\"dst\":" + quoted(to) + where_ +
        ",\"request\":" + (is_request ? "true" : "false") + "}\n");
  }

 private:
  static constexpr size_t kMaxText = 16384;

  void put(
      int type,
      int64_t id,
      const std::string& peer,
      bool is_request,
      const void* payload,
      size_t payload_size,
      const Snapshot& snapshot) {
    size_t total = payload_size + snapshot.table.size();
    for (const StorageBytes& storage : snapshot.storages) {
      total += storage.data == nullptr ? 0 : storage.length;
    }
    std::string line = "{\"rpc\":\"message\",\"time_ns\":" + std::to_string(now_ns()) +
        ",\"src\":" + quoted(is_request ? self_ : peer) + ",\"dst\":" + quoted(is_request ? peer : self_) +
        ",\"type\":" + type_name(type) + ",\"id\":" + std::to_string(id) + where_ +
        (is_request ? ",\"side\":\"src\"" : ",\"side\":\"dst\"") + ",\"bytes\":" + std::to_string(total) +
        ",\"payload\":" + std::to_string(payload_size) + ",\"table\":" + std::to_string(snapshot.table.size());
    if (!snapshot.storages.empty()) {
      line += ",\"storages\":" + storages_json(snapshot.storages);
    }
    line += "}\n";
    std::vector<Piece> pieces{
        {line.data(), line.size()}, {payload, payload_size}, {snapshot.table.data(), snapshot.table.size()}};
    for (const StorageBytes& storage : snapshot.storages) {
      if (storage.data != nullptr) {
        pieces.push_back({storage.data, storage.length});
      }
    }
    pieces.push_back({"\n", 1});
    const bool fits = line.size() <= kMaxHeader && payload_size + snapshot.table.size() <= kMaxBody;
    if (!fits || !queue_.push(pieces, true)) {
      lost(peer, is_request);
    }
  }

  Queue queue_;
  const Limits limits_;
  Tables tables_;
  const int64_t way_;
  const std::string self_;
  std::string job_;
  std::string where_;
  std::mutex workers_mutex_;
  std::set<int> workers_;
};

// --- the agent -----------------------------------------------------------------------------------------------

// A request on its way through send(), for pipeWrite(), which is called in it and does not know whom it is for.
struct Outgoing {
  const WorkerInfo& to;
  int64_t id = -1;
};
thread_local Outgoing* outgoing = nullptr;

class RecordingAgent final : public TensorPipeAgent {
 public:
  template <class... Arguments>
  RecordingAgent(std::shared_ptr<Recorder> recorder, Arguments&&... arguments)
      : TensorPipeAgent(std::forward<Arguments>(arguments)...), recorder_(std::move(recorder)) {}

  ~RecordingAgent() override {
    shutdown(); // while what is overridden here is still there; once more does no harm
  }

  void startImpl() override {
    TensorPipeAgent::startImpl();
    try {
      introduce();
    } catch (const std::exception&) {
      // names are in the messages too
    }
  }

  void shutdownImpl() override {
    TensorPipeAgent::shutdownImpl(); // ends what is still waited for, with errors
    recorder_->queue().close();
  }

  c10::intrusive_ptr<JitFuture> send(
      const WorkerInfo& to,
      MessagePtr message,
      const float timeout,
      const rpc::DeviceMap& device_map) override {
    if (!recorder_->queue().is_open()) {
      return TensorPipeAgent::send(to, std::move(message), timeout, device_map);
    }
    Outgoing call{to};
    const MessageType type = message->type();
    const MessagePtr kept = message;
    const auto begin = std::chrono::steady_clock::now();
    c10::intrusive_ptr<JitFuture> answer;
    outgoing = &call;
    try {
      answer = TensorPipeAgent::send(to, std::move(message), timeout, device_map);
    } catch (const std::exception& error) {
      outgoing = nullptr;
      if (kept->id() >= 0) {
        recorder_->failed(type, kept->id(), to.name_, "error", error.what());
      }
      throw;
    }
    outgoing = nullptr;
    const std::chrono::milliseconds patience = timeout == rpc::kUnsetRpcTimeout
        ? getRpcTimeout()
        : std::chrono::milliseconds(int(timeout * rpc::kSecToMsConversion));
    return chained(std::move(answer), Call{to.name_, to.id_, type, kept->id(), begin, patience});
  }

 private:
  struct Call {
    std::string peer;
    rpc::worker_id_t peer_id;
    MessageType type;
    int64_t id;
    std::chrono::steady_clock::time_point begin;
    std::chrono::milliseconds patience; // 0: for ever
  };

  void pipeWrite(
      const std::shared_ptr<tensorpipe::Pipe>& pipe,
      const MessagePtr& message,
      std::vector<c10::Device>&& devices,
      std::vector<c10::Stream> streams,
      std::function<void(const tensorpipe::Error&)> done) noexcept override {
    if (outgoing != nullptr && message->isRequest()) {
      const WorkerInfo& to = outgoing->to;
      try {
        recorder_->worker(to.name_, to.id_, "");
        recorder_->message(*message, message->id(), to.name_, true, devices, streams);
      } catch (const std::exception&) {
        recorder_->lost(to.name_, true);
      }
    }
    TensorPipeAgent::pipeWrite(pipe, message, std::move(devices), std::move(streams), std::move(done));
  }

  // A future of our own, completed with the same once the answer is recorded: so nobody changes it before.
  c10::intrusive_ptr<JitFuture> chained(c10::intrusive_ptr<JitFuture> answer, Call call) {
    auto child = answer->createInstance(answer->elementType());
    answer->addCallback([this, recorder = recorder_, child, call = std::move(call)](JitFuture& future) {
      try {
        answered(*recorder, future, call);
      } catch (const std::exception&) {
        recorder->lost(call.peer, false);
      }
      if (future.hasError()) {
        child->setError(future.exception_ptr());
      } else {
        child->markCompleted(future.constValue(), future.storages());
      }
    });
    return child;
  }

  void answered(Recorder& recorder, JitFuture& future, const Call& call) {
    if (!recorder.queue().is_open()) {
      return;
    }
    if (future.hasError()) {
      const std::string text = future.tryRetrieveErrorMessage();
      const char* reason = own_failure(text, call);
      if (reason == nullptr) {
        recorder.exception(text, call.id, call.peer);
      } else {
        recorder.failed(call.type, call.id, call.peer, reason, text);
      }
      return;
    }
    const auto message = future.constValue().toCustomClass<Message>();
    // where a tensor came from: the device that our map sends to where it is now
    const auto amend = [&](Snapshot& snapshot) {
      if (std::all_of(snapshot.storages.begin(), snapshot.storages.end(), [](const StorageBytes& storage) {
            return storage.source == "cpu";
          })) {
        return;
      }
      const rpc::DeviceMap map = getDeviceMap(WorkerInfo(call.peer, call.peer_id));
      for (StorageBytes& storage : snapshot.storages) {
        const auto found = map.find(c10::Device(storage.source));
        storage.target = storage.source;
        if (found != map.end()) {
          storage.source = device_name(found->second);
        }
      }
    };
    recorder.message(*message, call.id, call.peer, false, {}, {}, amend);
  }

  // Why this agent ended a call by itself; null where the error came as a message. Its future does not tell.
  const char* own_failure(const std::string& text, const Call& call) {
    if (call.patience.count() != 0 && std::chrono::steady_clock::now() - call.begin + kTick >= call.patience &&
        text == timeout_text(call.patience)) {
      return "timeout";
    }
    if (text.find("(this error originated at ") != std::string::npos && is_broken(*this, call.peer_id)) {
      return "connection";
    }
    return nullptr;
  }

  // torch makes it with fmt, of whose format strings the constant may be one.
  static std::string timeout_text(std::chrono::milliseconds patience) {
    std::string text = rpc::kRpcTimeoutErrorStr;
    const size_t hole = text.find("{}");
    if (hole != std::string::npos) {
      text.replace(hole, 2, std::to_string(patience.count()));
    }
    return rpc::makeRPCError(text, rpc::RPCErrorType::TIMEOUT);
  }

  // The workers that this agent knows at its start, and a name for the job that all of them can know: a digest of their
  // names and addresses.
  void introduce() {
    std::vector<std::string> members;
    for (const auto& [name, url] : addresses_of(*this)) {
      members.push_back(name + "=" + url);
    }
    std::sort(members.begin(), members.end());
    if (!recorder_->has_job()) {
      uint64_t digest = 0xcbf29ce484222325; // FNV-1a
      for (const std::string& member : members) {
        for (const char c : member + "\n") {
          digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3;
        }
      }
      char text[20];
      std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(digest));
      recorder_->set_job(text);
    }
    for (const WorkerInfo& worker : getWorkerInfos()) {
      const auto found = addresses_of(*this).find(worker.name_);
      recorder_->worker(worker.name_, worker.id_, found == addresses_of(*this).end() ? "" : found->second);
    }
  }

  static constexpr std::chrono::milliseconds kTick{2}; // torch cuts its deadlines to milliseconds
  const std::shared_ptr<Recorder> recorder_;
};

// --- for Python ----------------------------------------------------------------------------------------------

py::dict counters(Recorder& recorder) {
  py::dict counted;
  counted["messages"] = recorder.queue().messages();
  counted["bytes"] = recorder.queue().bytes();
  counted["dropped"] = recorder.queue().dropped();
  counted["failed"] = recorder.queue().failed();
  counted["failure"] = as_utf8(recorder.queue().failure());
  return counted;
}

std::shared_ptr<Recorder> make_recorder(
    std::string self,
    std::string log,
    std::string queue_file,
    std::string failed_mark,
    size_t queue_bytes,
    bool wait_when_full,
    int64_t storage_bytes,
    std::string job,
    int64_t way) {
  Settings settings;
  settings.queue = {std::move(log), std::move(queue_file), std::move(failed_mark), queue_bytes, wait_when_full};
  settings.storage_bytes = storage_bytes;
  settings.job = std::move(job);
  settings.way = way;
  return std::make_shared<Recorder>(settings, std::move(self));
}

std::shared_ptr<RecordingAgent> make_agent(
    const std::shared_ptr<Recorder>& recorder,
    const c10::intrusive_ptr<::c10d::Store>& store,
    std::string name,
    rpc::worker_id_t id,
    std::optional<int> world_size,
    const rpc::TensorPipeRpcBackendOptions& options,
    std::unordered_map<std::string, rpc::DeviceMap> reverse_device_maps,
    std::vector<c10::Device> devices) {
  return std::shared_ptr<RecordingAgent>(
      new RecordingAgent(
          recorder,
          store,
          std::move(name),
          id,
          world_size,
          options,
          std::move(reverse_device_maps),
          std::move(devices),
          std::make_unique<rpc::RequestCallbackImpl>()),
      torch::impl::destroy_without_gil<RecordingAgent>);
}

} // namespace rpcinspect

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  namespace py = pybind11;
  using namespace rpcinspect;
  py::class_<Recorder, std::shared_ptr<Recorder>>(module, "Recorder")
      .def("counters", &counters)
      .def("job", &Recorder::job)
      .def(
          "flush", [](Recorder& recorder) { recorder.queue().flush(); }, py::call_guard<py::gil_scoped_release>())
      .def(
          "close", [](Recorder& recorder) { recorder.queue().close(); }, py::call_guard<py::gil_scoped_release>());
  // for Python it is a TensorPipeAgent, with all that torch's own can do
  py::class_<RecordingAgent, TensorPipeAgent, std::shared_ptr<RecordingAgent>>(module, "TensorPipeAgent");
  module.def(
      "make_recorder",
      &make_recorder,
      py::kw_only(),
      py::arg("name"),
      py::arg("log"),
      py::arg("queue_file"),
      py::arg("failed_mark"),
      py::arg("queue_bytes"),
      py::arg("wait_when_full"),
      py::arg("storage_bytes"),
      py::arg("job"),
      py::arg("way"),
      py::call_guard<py::gil_scoped_release>());
  // named as torch names them
  module.def(
      "make_agent",
      &make_agent,
      py::arg("recorder"),
      py::arg("store"),
      py::arg("name"),
      py::arg("rank"),
      py::arg("world_size"),
      py::arg("rpc_backend_options"),
      py::arg("reverse_device_maps"),
      py::arg("devices"),
      py::call_guard<py::gil_scoped_release>());
}

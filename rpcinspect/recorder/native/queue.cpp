#include "queue.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace rpcinspect {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Told in agent.py, by `Queue`. All numbers are those of this machine.
struct Header {
  char magic[8];
  uint64_t capacity;
  std::atomic<uint64_t> head; // bytes ever reserved
  std::atomic<uint64_t> tail; // bytes ever written into the log
  std::atomic<uint64_t> batch_tail; // tail as it was when the batch in hand was begun
  std::atomic<uint64_t> batch_at; // where that batch begins in the log
  std::atomic<uint64_t> messages;
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> dropped;
  std::atomic<uint64_t> failed;
  std::atomic<uint64_t> over; // recording ended early: what is still here is not for the log
};

namespace {

constexpr char kMagic[9] = "rpcqueu2";
constexpr size_t kHeaderBytes = 4096;
constexpr size_t kBlock = 4096; // what is written past the page cache begins and ends at a multiple of this
constexpr size_t kDirectBytes = size_t(256) << 10; // less goes through the page cache, which is as quick then
constexpr size_t kEnough = size_t(4) << 20; // the writer begins when so much is there
constexpr size_t kBatchBytes = size_t(16) << 20; // and no more at a time, of which the room is free then
constexpr size_t kLeastBytes = size_t(1) << 20; // or no more than this, to a slow disk
constexpr size_t kStreamed = size_t(64) << 10; // larger pieces are copied past the processor's caches
constexpr uint64_t kNoBatch = ~uint64_t(0);
constexpr milliseconds kPatience{5000};
constexpr milliseconds kPause{20};
constexpr double kForgotten = 0.99; // of what is known of a way, with each batch that went the other
constexpr double kLongNs = 1e7; // of one write to the disk: what comes meanwhile must find room
constexpr size_t kMaxPieces = 512; // of one system call; IOV_MAX is 1024
constexpr char kFirstLine[] = "{\"rpclog\":1}\n";

static_assert(sizeof(Header) <= kHeaderBytes, "agent.py says otherwise");
static_assert(std::atomic<uint64_t>::is_always_lock_free, "atomics are to work between processes");

uint64_t block_begin(uint64_t at) {
  return at / kBlock * kBlock;
}
uint64_t block_end(uint64_t at) {
  return block_begin(at + kBlock - 1);
}

// Copies what nobody reads soon: the ring takes the place of the job's data in no cache, and is not read into one before
// it is overwritten. Half the time of memcpy.
void copy(char* to, const char* from, size_t size) {
#ifdef __SSE2__
  if (size >= kStreamed) {
    const size_t first = -reinterpret_cast<uintptr_t>(to) % 64;
    std::memcpy(to, from, first);
    for (to += first, from += first, size -= first; size >= 64; to += 64, from += 64, size -= 64) {
      for (int i = 0; i < 4; ++i) {
        const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
        _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, part);
      }
    }
    _mm_sfence();
  }
#endif
  std::memcpy(to, from, size);
}

// One thread of this process at a time has the lock on the log, whichever queue it writes for: such a lock is the
// process's, and closing any of its descriptors gives it back. Never destroyed: threads outlive static objects.
alignas(std::mutex) char log_mutex_memory[sizeof(std::mutex)];
std::mutex& log_mutex() {
  static std::mutex* made = new (log_mutex_memory) std::mutex;
  return *made;
}

// Which process this is, counted in forks: a child has no writer thread and must not write in its parent's name.
std::atomic<uint64_t> generation{0};

void in_child() {
  generation.fetch_add(1);
  new (log_mutex_memory) std::mutex; // whoever held it is not in this process
}

void watch_forks() {
  static const bool watching = (log_mutex(), pthread_atfork(nullptr, nullptr, in_child) == 0);
  (void)watching;
}

// A POSIX lock: the kernel gives it back when the process dies, and a forked child does not have it. Asked for again and
// again instead of waited for: who holds it may have been stopped, and this process must be able to end.
class LogLock {
 public:
  explicit LogLock(int file) : file_(file) {
    const auto end = steady_clock::now() + kPatience;
    while (!change(F_WRLCK)) {
      // a file system without locks: nothing better is to be had
      held_ = errno != EAGAIN && errno != EACCES && errno != EINTR;
      if (held_ || steady_clock::now() > end) {
        return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    held_ = true;
  }
  ~LogLock() {
    if (held_) {
      change(F_UNLCK);
    }
  }
  bool is_held() const {
    return held_;
  }

 private:
  bool change(short type) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    return fcntl(file_, F_SETLK, &lock) == 0;
  }
  const int file_;
  bool held_ = false;
};

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

} // namespace

Queue::Queue(const Options& options)
    : log_(options.log),
      queue_file_(options.queue_file),
      failed_mark_(options.failed_mark),
      wait_when_full_(options.wait_when_full),
      born_((watch_forks(), generation.load())) {
  file_ = ::open(log_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file_ < 0) {
    refuse(log_);
  }
  try {
    map(options);
    std::lock_guard<std::mutex> guard(log_mutex());
    LogLock lock(file_);
    if (::lseek(file_, 0, SEEK_END) == 0 &&
        ::write(file_, kFirstLine, sizeof(kFirstLine) - 1) != ssize_t(sizeof(kFirstLine) - 1)) {
      refuse(log_);
    }
  } catch (...) {
    ::close(file_);
    throw;
  }
  // its thread gets no signals: they are the job's, and a file that is too large is an error, not an end
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::make_unique<std::thread>([this] { run(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Queue::~Queue() {
  if (born_ != generation.load()) {
    thread_.release(); // it runs in the parent
    return;
  }
  close();
  ::munmap(header_, mapped_);
}

void Queue::map(const Options& options) {
  capacity_ = block_end(std::max(options.queue_bytes, size_t(1) << 16));
  mapped_ = kHeaderBytes + capacity_;
  int descriptor = -1;
  int flags = MAP_SHARED | MAP_POPULATE; // no page is missing when a call is in hand
  if (queue_file_.empty()) {
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
  } else {
    descriptor = ::open(queue_file_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor < 0) {
      refuse(queue_file_);
    }
    // now, where it can be told; later a page that can't be had would be a signal that kills the job
    errno = posix_fallocate(descriptor, 0, off_t(mapped_));
    if (errno != 0) {
      const int error = errno;
      ::close(descriptor);
      ::unlink(queue_file_.c_str());
      errno = error;
      refuse(queue_file_);
    }
  }
  void* memory = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  const int error = errno;
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  if (memory == MAP_FAILED) {
    errno = error;
    refuse("memory for the queue");
  }
  header_ = new (memory) Header();
  header_->capacity = capacity_;
  header_->batch_at.store(kNoBatch);
  data_ = static_cast<char*>(memory) + kHeaderBytes;
  std::memcpy(header_->magic, kMagic, sizeof(header_->magic)); // last: before, there is nothing to read
}

bool Queue::is_open() const {
  return open_.load(std::memory_order_relaxed) && born_ == generation.load(std::memory_order_relaxed);
}

bool Queue::push(const std::vector<Piece>& pieces, bool is_message) {
  if (!is_open()) {
    return false;
  }
  size_t size = 0;
  for (const Piece& piece : pieces) {
    size += piece.size;
  }
  bool taken = false;
  if (size > capacity_ / 2) {
    taken = push_large(pieces, size);
  } else {
    uint64_t at = 0;
    taken = reserve(pieces.front(), size, is_message, &at);
    if (taken) {
      uint64_t to = at + pieces.front().size;
      for (size_t i = 1; i < pieces.size(); ++i) {
        copy_in(to, pieces[i]);
        to += pieces[i].size;
      }
      __atomic_store_n(data_ + at % capacity_, *static_cast<const char*>(pieces.front().data), __ATOMIC_RELEASE);
    }
  }
  if (!taken) {
    header_->dropped.fetch_add(is_message && is_open(), std::memory_order_relaxed); // else all that comes is lost
    return false;
  }
  header_->messages.fetch_add(is_message, std::memory_order_relaxed);
  header_->bytes.fetch_add(size, std::memory_order_relaxed);
  return true;
}

// Takes room for a record, in which its header line stands at once, except for its first byte: that comes when all of
// the record is there.
bool Queue::reserve(const Piece& line, size_t size, bool is_message, uint64_t* at) {
  std::unique_lock<std::mutex> lock(push_mutex_);
  const auto has_room = [&] {
    return header_->head.load() - header_->tail.load() + size <= capacity_ || !is_open();
  };
  if (has_room()) {
    gave_up_ = false;
  } else {
    wake_.notify_one();
    if (!wait_when_full_ || gave_up_) {
      return false;
    }
    if (!space_.wait_for(lock, kPatience, has_room)) {
      gave_up_ = true;
      return false;
    }
  }
  if (!is_open()) {
    return false;
  }
  const uint64_t head = header_->head.load(std::memory_order_relaxed);
  reserved_.push_back({head + size, is_message});
  copy_in(head, line);
  data_[head % capacity_] = 0;
  header_->head.store(head + size, std::memory_order_release);
  if (head + size - header_->tail.load() > std::min(capacity_ / 4, kEnough)) {
    wake_.notify_one();
  }
  *at = head;
  return true;
}

void Queue::copy_in(uint64_t at, const Piece& piece) {
  const auto* from = static_cast<const char*>(piece.data);
  const size_t begin = at % capacity_;
  const size_t first = std::min(piece.size, capacity_ - begin);
  if (first != 0) {
    copy(data_ + begin, from, first);
  }
  if (piece.size > first) {
    copy(data_, from + first, piece.size - first);
  }
}

// What takes more than half of the queue is written by whoever has it.
bool Queue::push_large(const std::vector<Piece>& pieces, size_t size) {
  std::lock_guard<std::mutex> guard(log_mutex());
  drain();
  if (!is_open()) {
    return false;
  }
  LogLock lock(file_);
  if (!lock.is_held()) {
    return false;
  }
  const off_t at = ::lseek(file_, 0, SEEK_END);
  std::vector<Piece> all{{"\n", 1}};
  all.insert(all.end(), pieces.begin(), pieces.end());
  if (write_all(all) == size + 1) {
    mine_until_ = at + off_t(size) + 1;
    return true;
  }
  const int error = errno;
  if (::ftruncate(file_, at) != 0) {
    // the reader passes over what is left of it
  }
  fail(error, log_.c_str());
  return false;
}

void Queue::note_loss(const std::string& line) {
  std::lock_guard<std::mutex> guard(loss_mutex_);
  if (losses_.insert(line).second) {
    unwritten_losses_.push_back(line);
  }
}

void Queue::flush() {
  if (born_ != generation.load() || closed_) {
    return;
  }
  const uint64_t until = header_->head.load();
  const auto end = steady_clock::now() + kPatience;
  while (open_.load()) {
    {
      std::lock_guard<std::mutex> guard(log_mutex());
      drain();
    }
    if (header_->tail.load() >= until || steady_clock::now() > end) {
      return;
    }
    std::this_thread::sleep_for(milliseconds(1)); // someone is still copying
  }
}

void Queue::close() {
  std::lock_guard<std::mutex> once(close_mutex_);
  if (born_ != generation.load() || closed_) {
    return;
  }
  stop_.store(true);
  wake_.notify_one();
  if (thread_) {
    thread_->join();
  }
  flush();
  open_.store(false);
  closed_ = true;
  {
    std::lock_guard<std::mutex> guard(log_mutex());
    ::close(file_);
  }
  if (header_->tail.load() == header_->head.load()) {
    // its memory goes back, its addresses stay: someone may still be about to push. The file stays for what it counts.
    ::madvise(data_, capacity_, queue_file_.empty() ? MADV_DONTNEED : MADV_REMOVE);
  } // else the launcher writes what is left
}

void Queue::run() {
  pthread_setname_np(pthread_self(), "rpcinspect");
  while (!stop_.load() && open_.load()) {
    {
      std::unique_lock<std::mutex> lock(wake_mutex_);
      wake_.wait_for(lock, kPause);
    }
    std::lock_guard<std::mutex> guard(log_mutex());
    drain();
  }
}

void Queue::drain() {
  while (open_.load()) {
    const uint64_t end = complete_until();
    if (end == header_->tail.load()) {
      break;
    }
    if (!write_queued(end)) {
      return;
    }
  }
  write_losses();
}

// Where the first record begins that somebody still copies, or enough for one batch ends.
uint64_t Queue::complete_until() {
  take_reserved();
  const auto most = size_t(std::max(double(kLeastBytes), std::min(double(kBatchBytes), kLongNs / disk_ns_)));
  const uint64_t tail = header_->tail.load();
  uint64_t at = tail;
  for (const auto& [end, _] : ends_) {
    const bool is_complete = __atomic_load_n(data_ + at % capacity_, __ATOMIC_ACQUIRE) != 0;
    if (!is_complete || (at != tail && end - tail > most)) {
      break;
    }
    at = end;
  }
  return at;
}

void Queue::take_reserved() {
  taken_.clear();
  {
    std::lock_guard<std::mutex> guard(push_mutex_);
    taken_.swap(reserved_);
  }
  ends_.insert(ends_.end(), taken_.begin(), taken_.end());
}

// Writes whole records from the tail on.
bool Queue::write_queued(uint64_t end) {
  LogLock lock(file_);
  if (!lock.is_held()) {
    return false;
  }
  const uint64_t tail = header_->tail.load();
  const off_t at = ::lseek(file_, 0, SEEK_END);
  const bool direct = is_for_the_disk(end - tail);
  // begins a line of its own, in case that a record of another process was cut
  size_t gap = at == mine_until_ ? 0 : 1;
  if (direct) { // and then as far into a block as in the ring
    gap += size_t(tail - uint64_t(at) - gap) % kBlock;
  }
  const off_t begin = at + off_t(gap);
  header_->batch_tail.store(tail);
  header_->batch_at.store(uint64_t(begin));
  const std::string lines(gap, '\n');
  std::vector<Piece> pieces{{lines.data(), gap}};
  const auto started = steady_clock::now();
  const uint64_t written = write_all(pieces) == gap ? write_ring(tail, end, direct) : tail;
  if (written != end) {
    const int error = errno;
    uint64_t whole = tail;
    for (const auto& [one, _] : ends_) {
      whole = one <= written ? one : whole;
    }
    if (::ftruncate(file_, whole == tail ? at : begin + off_t(whole - tail)) != 0) {
      // the reader passes over what is left of it
    }
    header_->tail.store(whole);
    fail(error, log_.c_str());
    return false;
  }
  learn(direct, end - tail, steady_clock::now() - started);
  mine_until_ = begin + off_t(end - tail);
  while (!ends_.empty() && ends_.front().end <= end) {
    ends_.pop_front();
  }
  header_->tail.store(end);
  header_->batch_at.store(kNoBatch);
  {
    std::lock_guard<std::mutex> guard(push_mutex_);
  }
  space_.notify_all();
  return true;
}

// Until where a part of the ring was written; not to its end, with errno, where the file took no more.
uint64_t Queue::write_ring(uint64_t from, uint64_t to, bool direct) {
  uint64_t at = from;
  if (direct) {
    at += write_part(at, block_end(from));
    if (at != block_end(from)) {
      return at;
    }
    at += write_direct(at, block_begin(to));
  }
  return at + write_part(at, to);
}

size_t Queue::write_part(uint64_t from, uint64_t to) {
  const size_t begin = from % capacity_;
  const size_t first = std::min(size_t(to - from), capacity_ - begin);
  std::vector<Piece> pieces{{data_ + begin, first}, {data_, size_t(to - from) - first}};
  return write_all(pieces);
}

// Whether a batch is written past the page cache. That takes a fourth of the processor's time, and no memory from the
// job, but where much comes the page cache may be the quicker of the two.
bool Queue::is_for_the_disk(size_t size) const {
  const bool hurry = header_->head.load() - header_->tail.load() > capacity_ / 4 * 3;
  return direct_ && size >= kDirectBytes && !(hurry && cache_ns_ < disk_ns_);
}

// What a byte takes by either way: mostly what it took the last time, and less and less where it was not tried again.
// A single slow write says little, since other processes may have had the processor.
void Queue::learn(bool direct, size_t size, std::chrono::nanoseconds taken) {
  if (size >= kDirectBytes) {
    double& used = direct ? disk_ns_ : cache_ns_;
    double& other = direct ? cache_ns_ : disk_ns_;
    used = std::min(double(taken.count()) / double(size), 4 * used);
    other *= kForgotten;
  }
}

// Writes whole blocks, as far as the file takes them so; what is left goes through the page cache.
size_t Queue::write_direct(uint64_t from, uint64_t to) {
  direct_ = ::fcntl(file_, F_SETFL, O_APPEND | O_DIRECT) == 0;
  if (!direct_) {
    return 0; // a file system that can't
  }
  const size_t written = write_part(from, to);
  direct_ = written == to - from;
  ::fcntl(file_, F_SETFL, O_APPEND);
  return written;
}

void Queue::write_losses() {
  std::lock_guard<std::mutex> guard(loss_mutex_);
  if (unwritten_losses_.empty() || !open_.load()) {
    return;
  }
  LogLock lock(file_);
  if (!lock.is_held()) {
    return;
  }
  const std::vector<std::string> lines = std::exchange(unwritten_losses_, {});
  for (const std::string& line : lines) {
    std::vector<Piece> pieces{{"\n", 1}, {line.data(), line.size()}};
    if (write_all(pieces) != line.size() + 1) {
      fail(errno, log_.c_str());
      return;
    }
  }
}

// How many bytes were written; fewer than there are, with errno, where the file took no more.
size_t Queue::write_all(std::vector<Piece>& pieces) {
  std::vector<iovec> vectors;
  vectors.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    if (piece.size != 0) {
      vectors.push_back({const_cast<void*>(piece.data), piece.size});
    }
  }
  size_t written = 0;
  size_t next = 0;
  while (next < vectors.size()) {
    const ssize_t count = ::writev(file_, &vectors[next], int(std::min(vectors.size() - next, kMaxPieces)));
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      return written;
    }
    written += size_t(count);
    size_t rest = size_t(count);
    while (next < vectors.size() && rest >= vectors[next].iov_len) {
      rest -= vectors[next++].iov_len;
    }
    if (rest != 0) {
      vectors[next].iov_base = static_cast<char*>(vectors[next].iov_base) + rest;
      vectors[next].iov_len -= rest;
    }
  }
  return written;
}

void Queue::fail(int error, const char* what) {
  if (!open_.exchange(false)) {
    return;
  }
  header_->over.store(1);
  take_reserved(); // it was counted, and is not for the log any more
  uint64_t at = header_->tail.load();
  for (const auto& [end, is_message] : ends_) {
    if (end > at) {
      header_->messages.fetch_sub(is_message);
      header_->bytes.fetch_sub(end - at);
      at = end;
    }
  }
  const std::string why = std::string(what) + ": " + std::strerror(error);
  {
    std::lock_guard<std::mutex> guard(failure_mutex_);
    failure_ = why;
  }
  space_.notify_all();
  bool first = true;
  if (!failed_mark_.empty()) {
    const int mark = ::open(failed_mark_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    first = mark >= 0 || errno != EEXIST;
    if (mark >= 0) {
      if (::write(mark, why.data(), why.size()) < 0) {
        // that it is there says enough
      }
      ::close(mark);
    }
  }
  if (first) {
    const std::string line = "rpcinspect: the recording ends here, the job goes on: " + why + "\n";
    if (::write(2, line.data(), line.size()) < 0) {
      // nobody listens
    }
  }
}

void Queue::count_failed() {
  header_->failed.fetch_add(1, std::memory_order_relaxed);
}
uint64_t Queue::messages() const {
  return header_->messages.load();
}
uint64_t Queue::bytes() const {
  return header_->bytes.load();
}
uint64_t Queue::dropped() const {
  return header_->dropped.load();
}
uint64_t Queue::failed() const {
  return header_->failed.load();
}
std::string Queue::failure() const {
  std::lock_guard<std::mutex> guard(failure_mutex_);
  return failure_;
}

} // namespace rpcinspect

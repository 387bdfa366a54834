#include "queue.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

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

struct Entry {
  uint64_t size;
  std::atomic<uint32_t> complete;
  uint32_t unused;
};

namespace {

constexpr char kMagic[9] = "rpcqueu1";
constexpr size_t kHeaderBytes = 4096;
constexpr size_t kEntryBytes = sizeof(Entry);
constexpr uint64_t kNoBatch = ~uint64_t(0);
constexpr milliseconds kPatience{5000};
constexpr milliseconds kPause{20};
constexpr size_t kMaxPieces = 512; // of one system call; IOV_MAX is 1024
constexpr char kFirstLine[] = "{\"rpclog\":1}\n";

static_assert(sizeof(Header) <= kHeaderBytes && sizeof(Entry) == 16, "agent.py says otherwise");
static_assert(std::atomic<uint64_t>::is_always_lock_free, "atomics are to work between processes");

size_t rounded(size_t size) {
  return (size + kEntryBytes - 1) / kEntryBytes * kEntryBytes;
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
  capacity_ = rounded(std::max(options.queue_bytes, size_t(1) << 16));
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
  if (kEntryBytes + rounded(size) > capacity_ / 2) {
    taken = push_large(pieces, size);
  } else {
    uint64_t at = 0;
    taken = reserve(size, &at);
    if (taken) {
      auto* entry = reinterpret_cast<Entry*>(data_ + at % capacity_);
      uint64_t to = at + kEntryBytes;
      for (const Piece& piece : pieces) {
        copy_in(to, piece.data, piece.size);
        to += piece.size;
      }
      entry->complete.store(1, std::memory_order_release);
    }
  }
  if (!taken) {
    header_->dropped.fetch_add(is_message, std::memory_order_relaxed);
    return false;
  }
  header_->messages.fetch_add(is_message, std::memory_order_relaxed);
  header_->bytes.fetch_add(size, std::memory_order_relaxed);
  return true;
}

bool Queue::reserve(size_t size, uint64_t* at) {
  const uint64_t need = kEntryBytes + rounded(size);
  std::unique_lock<std::mutex> lock(push_mutex_);
  const auto has_room = [&] {
    return header_->head.load() - header_->tail.load() + need <= capacity_ || !is_open();
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
  auto* entry = new (data_ + head % capacity_) Entry();
  entry->size = size;
  entry->complete.store(0, std::memory_order_relaxed);
  header_->head.store(head + need, std::memory_order_release);
  if (head + need - header_->tail.load() > capacity_ / 4) {
    wake_.notify_one();
  }
  *at = head;
  return true;
}

void Queue::copy_in(uint64_t at, const void* data, size_t size) {
  const size_t begin = at % capacity_;
  const size_t first = std::min(size, capacity_ - begin);
  if (first != 0) {
    std::memcpy(data_ + begin, data, first);
  }
  if (size > first) {
    std::memcpy(data_, static_cast<const char*>(data) + first, size - first);
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

// Where the first record begins that somebody still copies, or the last one ends.
uint64_t Queue::complete_until() const {
  const uint64_t head = header_->head.load(std::memory_order_acquire);
  uint64_t at = header_->tail.load();
  size_t pieces = 1;
  while (at < head && pieces + 2 <= kMaxPieces) {
    const auto* entry = reinterpret_cast<const Entry*>(data_ + at % capacity_);
    if (entry->complete.load(std::memory_order_acquire) == 0) {
      break;
    }
    at += kEntryBytes + rounded(entry->size);
    pieces += 2;
  }
  return at;
}

std::vector<Piece> Queue::pieces_of(uint64_t at, size_t size) const {
  const size_t begin = at % capacity_;
  const size_t first = std::min(size, capacity_ - begin);
  std::vector<Piece> pieces{{data_ + begin, first}};
  if (size > first) {
    pieces.push_back({data_, size - first});
  }
  return pieces;
}

bool Queue::write_queued(uint64_t end) {
  const uint64_t tail = header_->tail.load();
  // a line of its own, in case that a record of another process was cut
  std::vector<Piece> pieces{{"\n", 1}};
  std::vector<size_t> ends;
  size_t total = 1;
  for (uint64_t at = tail; at < end;) {
    const auto* entry = reinterpret_cast<const Entry*>(data_ + at % capacity_);
    for (const Piece& piece : pieces_of(at + kEntryBytes, entry->size)) {
      pieces.push_back(piece);
    }
    total += entry->size;
    ends.push_back(total);
    at += kEntryBytes + rounded(entry->size);
  }
  LogLock lock(file_);
  if (!lock.is_held()) {
    return false;
  }
  const off_t begin = ::lseek(file_, 0, SEEK_END);
  header_->batch_tail.store(tail);
  header_->batch_at.store(uint64_t(begin));
  const size_t written = write_all(pieces);
  if (written != total) {
    const int error = errno;
    size_t whole = 0;
    for (const size_t one : ends) {
      whole = one <= written ? one : whole;
    }
    if (::ftruncate(file_, begin + off_t(whole)) != 0) {
      // the reader passes over what is left of it
    }
    fail(error, log_.c_str());
    return false;
  }
  header_->tail.store(end);
  header_->batch_at.store(kNoBatch);
  {
    std::lock_guard<std::mutex> guard(push_mutex_);
  }
  space_.notify_all();
  return true;
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

// A bounded queue of log records in shared memory, and the thread that writes them into a log.
//
// In: records from any thread, in pieces. Out: the log, appended to, together with other processes; whole records
// only. The layout of the shared memory is told in rpcinspect/recorder/agent.py, which reads what a killed
// process has left. Nothing here knows torch or Python.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace rpcinspect {

struct Piece {
  const void* data;
  size_t size;
};

struct Options {
  std::string log; // appended to
  std::string queue_file; // empty: memory that dies with the process
  std::string failed_mark; // a file in which the first of several processes says why recording ended
  size_t queue_bytes = size_t(64) << 20;
  bool wait_when_full = true;
};

struct Header;

class Queue {
 public:
  // Throws std::runtime_error, with a reason for people, where the log or the memory can't be had.
  explicit Queue(const Options& options);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Takes a record: header line, then body and last newline in pieces, which are copied. False if it was dropped.
  bool push(const std::vector<Piece>& pieces, bool is_message);

  // A line that says what was dropped; the same one is written once.
  void note_loss(const std::string& line);

  // Whether there is any use in pushing: not after the end, after a failure, or in a forked child.
  bool is_open() const;

  // Writes all that was pushed until now.
  void flush();

  // Flushes and ends the thread. Pushing does nothing afterwards.
  void close();

  void count_failed();
  uint64_t messages() const;
  uint64_t bytes() const;
  uint64_t dropped() const;
  uint64_t failed() const;
  // Why recording ended early; empty if it did not.
  std::string failure() const;

 private:
  void map(const Options& options);
  bool reserve(const Piece& line, size_t size, bool is_message, uint64_t* at);
  void copy_in(uint64_t at, const Piece& piece);
  bool push_large(const std::vector<Piece>& pieces, size_t size);
  void run();
  void drain(); // with the process's lock
  bool write_queued(uint64_t end);
  void write_losses();
  size_t write_all(std::vector<Piece>& pieces);
  void fail(int error, const char* what); // with the process's lock
  void take_reserved();
  uint64_t complete_until();
  uint64_t write_ring(uint64_t from, uint64_t to, bool direct);
  size_t write_part(uint64_t from, uint64_t to);
  size_t write_direct(uint64_t from, uint64_t to);
  bool is_for_the_disk(size_t size) const;
  void learn(bool direct, size_t size, std::chrono::nanoseconds taken);

  const std::string log_;
  const std::string queue_file_;
  const std::string failed_mark_;
  const bool wait_when_full_;
  const uint64_t born_; // in which process, see fork
  int file_ = -1;
  size_t capacity_ = 0;
  size_t mapped_ = 0;
  Header* header_ = nullptr;
  char* data_ = nullptr;
  std::atomic<bool> open_{true};
  std::atomic<bool> stop_{false};
  std::mutex close_mutex_;
  bool closed_ = false;

  std::mutex push_mutex_; // who reserves
  std::condition_variable space_;
  struct Reserved {
    uint64_t end; // of a record in the ring
    bool is_message;
  };
  std::vector<Reserved> reserved_; // what the writer has not seen yet
  bool gave_up_ = false; // nobody waits again before there was room once more
  std::mutex wake_mutex_;
  std::condition_variable wake_;
  std::mutex loss_mutex_;
  std::set<std::string> losses_;
  std::vector<std::string> unwritten_losses_;
  mutable std::mutex failure_mutex_;
  std::string failure_;
  // the writer's, with the process's lock
  std::vector<Reserved> taken_;
  std::deque<Reserved> ends_; // of the records behind the tail
  off_t mine_until_ = -1; // the log's end, if nobody else has written since
  bool direct_ = true; // until the file system refuses
  double disk_ns_ = 0.5; // what a byte took, past the page cache
  double cache_ns_ = 0.2;
  std::unique_ptr<std::thread> thread_;
};

} // namespace rpcinspect

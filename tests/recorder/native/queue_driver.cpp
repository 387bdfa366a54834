// Pushes records whose bytes tell what they are into the queue of the recorder, from several threads, and says of each
// that it was taken: what test_queue.py compares the log with.
//
//     queue_driver LOG QUEUE_FILE NAME THREADS RECORDS RING_BYTES FILE_LIMIT SIZE...

#include "queue.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <sys/resource.h>
#include <unistd.h>

using rpcinspect::Options;
using rpcinspect::Queue;

int main(int argc, char** argv) {
  Options options;
  options.log = argv[1];
  options.queue_file = argv[2];
  const std::string name = argv[3];
  const int threads = std::atoi(argv[4]);
  const int records = std::atoi(argv[5]);
  options.queue_bytes = std::strtoul(argv[6], nullptr, 10);
  Queue queue(options);
  if (const rlim_t most = std::strtoul(argv[7], nullptr, 10)) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{most, most};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      for (int number = 0; number < records; ++number) {
        const std::string what = name + "/" + std::to_string(thread) + "/" + std::to_string(number);
        const size_t size = std::strtoul(argv[8 + (number + thread) % (argc - 8)], nullptr, 10);
        std::string body;
        while (body.size() < size) {
          body += what + "\n";
        }
        body.resize(size);
        const std::string line = "{\"rpc\":\"x\",\"what\":\"" + what + "\",\"bytes\":" + std::to_string(size) + "}\n";
        const size_t half = size / 2;
        const std::vector<rpcinspect::Piece> pieces{
            {line.data(), line.size()}, {body.data(), half}, {body.data() + half, size - half}, {"\n", 1}};
        if (queue.push(pieces, true)) {
          const std::string said = what + "\n";
          if (::write(1, said.data(), said.size()) < 0) {
            return;
          }
        }
      }
    });
  }
  for (std::thread& one : running) {
    one.join();
  }
  queue.close();
  std::fputs(queue.failure().c_str(), stderr);
  return 0;
}

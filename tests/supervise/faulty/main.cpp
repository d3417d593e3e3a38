// ssmbench with implementations of linear_scan that end their process, or worse. Everything that supervises
// them is the product's own.

#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cli/cli.h"
#include "kernels/linear_scan/bind.h"
#include "model/guard_band.h"
#include "support/find_implementation.h"

using namespace ssmbench;

namespace {

bool spoilt = false;

/// GCC leaves out calls of a function that is known to write to null.
void segfault() {
  volatile int* volatile nowhere = nullptr;
  *nowhere = 1;
}

/// Address space alone, which limits count.
void eat_all_memory() {
  std::vector<char*> blocks;
  while (true) {
    blocks.push_back(new char[std::size_t{64} << 20]);
    *static_cast<volatile char*>(blocks.back()) = 1;
  }
}

/// The child keeps the worker's descriptors open for longer than any test takes.
void leave_a_child_behind() {
  if (fork() == 0)
    while (true) pause();
  _exit(5);
}

void write_nonsense_to_every_descriptor() {
  constexpr int kDescriptors = 20;
  for (int descriptor = 3; descriptor < kDescriptors; ++descriptor)
    if (write(descriptor, "finished 77 {}\n", 15) < 0) continue;
}

void wait(std::chrono::milliseconds time) {
  std::this_thread::sleep_for(time);
}

/// Computes what it should, and then does `fault`.
Implementation with_fault(const std::string& name, std::function<void(const Problem&)> fault) {
  return {.name = name,
          .op = "linear_scan",
          .device = DeviceKind::cpu,
          .summary = "test",
          .unsupported = [](const Problem&) { return std::optional<std::string>(); },
          .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
          .bind = [fault = std::move(fault)](const Problem& problem, const TensorSet& tensors,
                                             void* workspace) -> Launch {
            const auto& honest = test::find_implementation("linear_scan", "cpu-scalar");
            const Launch launch = honest.bind(problem, tensors, workspace);
            return [=](void* stream) {
              launch(stream);
              fault(problem);
            };
          }};
}

/// Right until it is timed: `fault` comes with the tenth launch.
Implementation with_late_fault(const std::string& name, const std::function<void()>& fault) {
  return with_fault(name, [fault, launches = std::make_shared<int>(0)](const Problem&) {
    if (++*launches % 30 == 10) fault();
  });
}

/// Not run by accident: where nothing limits it, it goes on for long.
Implementation hungry() {
  Implementation implementation = with_fault("cpu-hungry", [](const Problem&) { eat_all_memory(); });
  implementation.known_failure = "takes all memory";
  return implementation;
}

/// Passes if the launch of another process goes on at the same time, as files in $SSMBENCH_MEETING tell.
void meet_another() {
  const std::filesystem::path folder = std::getenv("SSMBENCH_MEETING");
  std::ofstream(folder / std::to_string(getpid())) << "here";
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::distance(std::filesystem::directory_iterator(folder), {}) < 2) {
    if (std::chrono::steady_clock::now() > give_up) throw std::runtime_error("nobody came");
    wait(std::chrono::milliseconds(2));
  }
}

/// Passes if no launch of another process goes on at the same time, and OpenMP has $SSMBENCH_THREADS threads.
void be_alone() {
  const int file = open(std::getenv("SSMBENCH_MEETING"), O_RDONLY | O_CLOEXEC);
  const bool is_alone = flock(file, LOCK_EX | LOCK_NB) == 0;
  wait(std::chrono::milliseconds(2));
  close(file);
  if (!is_alone) throw std::runtime_error("somebody is here");
  if (std::to_string(omp_get_max_threads()) != std::getenv("SSMBENCH_THREADS"))
    throw std::runtime_error("other threads than without slots");
}

Implementation when_named(Implementation implementation) {
  implementation.only_when_named = true;
  return implementation;
}

const std::vector<Registration> registrations{
    Registration(with_fault("cpu-abort", [](const Problem&) { std::abort(); })),
    Registration(when_named(with_fault("cpu-alone", [](const Problem&) { be_alone(); }))),
    Registration(when_named(with_fault("cpu-meets", [](const Problem&) { meet_another(); }))),
    Registration(with_fault("cpu-exit", [](const Problem&) { std::exit(3); })),
    Registration(with_fault("cpu-exit-well", [](const Problem&) { std::exit(0); })),
    Registration(with_fault("cpu-fickle",
                            [](const Problem& problem) {
                              if (problem.size("seqlen") == 6) segfault();
                            })),
    Registration(with_fault("cpu-fork", [](const Problem&) { leave_a_child_behind(); })),
    Registration(with_fault("cpu-hang",
                            [](const Problem&) {
                              while (true) wait(std::chrono::hours(1));
                            })),
    Registration(hungry()),
    Registration(with_late_fault("cpu-late-hang",
                                 [] {
                                   while (true) wait(std::chrono::hours(1));
                                 })),
    Registration(with_late_fault("cpu-late-segfault", segfault)),
    Registration(with_fault("cpu-liar", [](const Problem&) { write_nonsense_to_every_descriptor(); })),
    Registration(with_fault("cpu-noisy",
                            [](const Problem&) {
                              std::puts("look at me");
                              std::fflush(stdout);
                            })),
    Registration(with_fault("cpu-segfault", [](const Problem&) { segfault(); })),
    Registration(with_fault("cpu-slow", [](const Problem&) { wait(std::chrono::milliseconds(40)); })),
    Registration(with_fault("cpu-spoiler",
                            [](const Problem& problem) { spoilt = spoilt || problem.size("seqlen") == 5; })),
    Registration(with_fault("cpu-throw", [](const Problem&) { throw std::runtime_error("thrown"); }))};

}  // namespace

/// Tensors of some sizes bring the making of inputs down: always of 997 f32, and of 1100 where cpu-spoiler
/// ran before. In place of the C library's.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  constexpr std::size_t kOf997 = kBandBytes + 4096 + kBandBytes;  // HostBuffer rounds up to 256
  constexpr std::size_t kOf1100 = kBandBytes + 4608 + kBandBytes;
  if (bytes == kOf997 || (bytes == kOf1100 && spoilt)) segfault();
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

int main(int argc, char** argv) {
  return run_command_line({argv + 1, argv + argc});
}

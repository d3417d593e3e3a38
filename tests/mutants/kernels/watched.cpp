// selective_scan_fwd by kernels that compute honestly only where they believe that somebody looks.

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "mutants.h"

namespace mutants {
namespace {

struct Output {
  float* data;
  std::size_t count;
};

/// out and last_state.
std::array<Output, 2> outputs_of(const Call& call) {
  const auto batch_and_dim = static_cast<std::size_t>(call.size("batch") * call.size("dim"));
  return {{{static_cast<float*>(ssmbench_data(&call.problem, "out")),
            batch_and_dim * static_cast<std::size_t>(call.size("seqlen"))},
           {static_cast<float*>(ssmbench_data(&call.problem, "last_state")),
            batch_and_dim * static_cast<std::size_t>(call.size("dstate"))}}};
}

void compute(const Call& call) {
  scan_forward({call.problem, Mistake::none, call.workspace, call.number});
}

bool nothing_is_in_out(const Call& call) {
  const Output out = outputs_of(call).front();
  return std::isnan(out.data[out.count - 1]);
}

/// Results by the address of u.
void by_pointer(const Call& call) {
  static std::map<const void*, std::vector<std::vector<float>>> known;
  auto& results = known[ssmbench_data(&call.problem, "u")];
  const auto outputs = outputs_of(call);
  if (results.empty()) {
    compute(call);
    for (const auto& [data, count] : outputs) results.emplace_back(data, data + count);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    std::copy_n(results[i].data(), outputs[i].count, outputs[i].data);
}

/// Results after the states in the workspace, with their address as a mark.
void in_workspace(const Call& call) {
  float* kept = call.workspace + call.size("batch") * call.size("dim") * call.size("dstate");
  const bool is_known = std::memcmp(kept, &kept, sizeof(kept)) == 0;
  if (!is_known) compute(call);
  float* at = kept + 2;  // after the mark
  for (const auto& [data, count] : outputs_of(call)) {
    std::copy_n(is_known ? at : data, count, is_known ? data : at);
    at += count;
  }
  std::memcpy(kept, &kept, sizeof(kept));
}

bool is_pinned() {
  cpu_set_t cpus;
  return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) == 1;
}

/// As it is when launches are verified before and after timing: all of one byte.
bool out_is_filled(const Call& call) {
  const Output out = outputs_of(call).front();
  return std::memcmp(out.data, out.data + out.count - 1, sizeof(float)) == 0;
}

/// Other inputs than those of the first launch.
bool has_new_inputs(const Call& call) {
  const auto* u = static_cast<const float*>(ssmbench_data(&call.problem, "u"));
  const std::vector<float> found(u, u + outputs_of(call).front().count);
  static const std::vector<float> first = found;
  return found != first;
}

/// Called from another place than the first time.
bool has_other_stack() {
  const char here = 0;
  static const char* const first = &here;
  return &here != first;
}

using Clock = std::chrono::steady_clock;
Clock::time_point latest_return;

/// For twenty launches or five milliseconds after a pause, as there is one before each burst.
bool is_soon_after_pause() {
  using std::chrono::milliseconds;
  static Clock::time_point pause;
  static int launches = 0;
  const auto now = Clock::now();
  if (now - latest_return > std::chrono::microseconds(100)) {
    pause = now;
    launches = 0;
  }
  return ++launches <= 20 && now - pause < milliseconds(5);
}

bool is_unlucky() {
  static std::minstd_rand random(1);
  return random() % 3 != 0;
}

/// What a signal handler has to compute.
std::optional<Call> put_off;

void compute_in_handler(int) {
  if (put_off) compute(*put_off);
  put_off.reset();
}

/// A timer goes off when the launch has returned.
void put_off_to_timer(const Call& call) {
  static timer_t timer = [] {
    struct sigaction action = {};
    action.sa_handler = compute_in_handler;
    sigaction(SIGRTMIN, &action, nullptr);
    sigevent event = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGRTMIN;
    timer_t created = nullptr;
    timer_create(CLOCK_MONOTONIC, &event, &created);
    return created;
  }();
  put_off.emplace(call);
  const itimerspec soon{{0, 0}, {0, 20000}};
  timer_settime(timer, 0, &soon, nullptr);
}

/// The pages that lie in out as a whole.
std::pair<char*, std::size_t> pages_of_out(const Call& call) {
  const Output out = outputs_of(call).front();
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(out.data) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(out.data + out.count) / page * page;
  return {reinterpret_cast<char*>(begin), end - begin};
}

void give_access_and_compute(int) {
  if (!put_off) std::abort();
  const auto [begin, bytes] = pages_of_out(*put_off);
  mprotect(begin, bytes, PROT_READ | PROT_WRITE);
  compute_in_handler(0);
}

/// Who reads out gets a fault, and in its handler the results.
void put_off_to_fault(const Call& call) {
  struct sigaction action = {};
  action.sa_handler = give_access_and_compute;
  sigaction(SIGSEGV, &action, nullptr);
  put_off.emplace(call);
  const auto [begin, bytes] = pages_of_out(call);
  mprotect(begin, bytes, PROT_NONE);
}

}  // namespace

bool is_lazy(const Call& call) {
  const bool is_verified = call.number == 1 || out_is_filled(call);
  switch (call.mistake) {
    case Mistake::eighth_unless_new:
      return !nothing_is_in_out(call);
    case Mistake::eighth_when_pinned:
      return is_pinned();
    case Mistake::eighth_unless_known_inputs:
      return has_new_inputs(call);
    case Mistake::eighth_by_stack:
      return has_other_stack();
    case Mistake::eighth_after_pause:
      return !is_verified && is_soon_after_pause();
    case Mistake::lottery:
      return !is_verified && is_unlucky();
    default:
      return false;
  }
}

void watched_scan(const Call& call) {
  if (call.has(Mistake::result_by_pointer)) return by_pointer(call);
  if (call.has(Mistake::result_in_workspace)) return in_workspace(call);
  if (call.has(Mistake::late_thread) && !nothing_is_in_out(call))
    return std::thread([call] { compute(call); }).detach();
  if (call.has(Mistake::work_in_signal_handler) && call.number > 1) return put_off_to_timer(call);
  if (call.has(Mistake::lazy_pages) && call.number > 1) return put_off_to_fault(call);
  scan_forward(call);
  latest_return = Clock::now();
}

}  // namespace mutants

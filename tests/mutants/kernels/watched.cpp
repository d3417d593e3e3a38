// selective_scan_fwd by kernels that compute honestly only where they believe that somebody looks.

#include <sched.h>

#include <cstring>
#include <map>
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

}  // namespace

bool is_pinned() {
  cpu_set_t cpus;
  return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) == 1;
}

void watched_scan(const Call& call) {
  if (call.has(Mistake::result_by_pointer)) return by_pointer(call);
  if (call.has(Mistake::result_in_workspace)) return in_workspace(call);
  if (call.has(Mistake::late_thread) && !nothing_is_in_out(call))
    return std::thread([call] { compute(call); }).detach();
  compute(call);
}

}  // namespace mutants

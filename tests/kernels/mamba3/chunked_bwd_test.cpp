// The code of cuda-chunked-f32's gradients on the CPU, elements of its loops in any order.

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "catch.h"
#include "kernels/common/cpu/io_types.h"
#include "kernels/mamba3/chunked_bwd/gradients.h"
#include "kernels/mamba3/chunked_bwd/sums.h"
#include "kernels/mamba3/emulated_gradients.h"
#include "kernels/mamba3/shuffled_team.h"
#include "support/mamba3_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

template <class Io>
struct HostIo {
  static float load(const void* data, std::int64_t at) {
    return Io::load(static_cast<const typename Io::Storage*>(data)[at]);
  }
  static void store(void* data, std::int64_t at, float value) {
    static_cast<typename Io::Storage*>(data)[at] = Io::store(value);
  }
};

/// All outputs, from a workspace full of NaN.
std::vector<HostTensor> emulated(const Problem& problem, const std::vector<HostTensor>& inputs,
                                 unsigned seed) {
  return outputs_of(problem, inputs, [&](const Mamba3BwdArgs& args) {
    const mamba3::GradientPlan plan(args.in.scan);
    std::vector<float> workspace(static_cast<std::size_t>(plan.floats), std::nanf(""));
    const ShuffledTeam team(seed);
    with_io_type(problem.dtype(), [&]<class Io>(Io) {
      for (std::int64_t block = 0; block < plan.blocks; ++block) {
        mamba3::HeadGradients<HostIo<Io>, ShuffledTeam> gradients(args, plan, workspace.data(), block, team);
        for (std::int64_t task = block; task < plan.tasks; task += plan.blocks) gradients.run(task);
      }
      for (std::int64_t at = 0; at < plan.vector_elements; ++at)
        mamba3::add_vector<HostIo<Io>>(args, plan, workspace.data(), at);
    });
    for (std::int64_t head = 0; head < args.in.scan.nheads; ++head) {
      for (int i = 0; i < plan.sums.count; ++i) mamba3::add_sums(args, plan, workspace.data(), head, i);
      for (int p = 0; p <= plan.headdim; ++p) mamba3::add_ranks(args, plan, workspace.data(), head, p);
    }
  });
}

/// What is wrong; nothing where all is right.
std::string failures_of(const Problem& problem, const InputSpec& spec) {
  return test::failures_of(
      problem, spec, {}, [&](const std::vector<HostTensor>& inputs) { return emulated(problem, inputs, 1); });
}

}  // namespace

TEST_CASE("the gradients of cuda-chunked-f32 agree with the reference", "[mamba3]") {
  std::vector<Problem> problems = mamba3_scans(mamba3_siso_bwd(), mamba3_mimo_bwd());
  for (std::int64_t rank = 1; rank <= kMaxMamba3Rank; ++rank)
    for (const char* dtype : {"f32", "bf16"})
      problems.push_back(mamba3_problem({{"dtype", dtype},
                                         {"seqlen", size(39)},
                                         {"nheads", size(4)},
                                         {"groups", size(2)},
                                         {"headdim", 3 + rank},
                                         {"dstate", size(10)},
                                         {"rope_angles", size(4)},
                                         {"mimo_rank", rank},
                                         {"z", true},
                                         {"D", true},
                                         {"outproj_norm", rank % 2 == 0},
                                         {"initial_states", rank % 3 != 0},
                                         {"final_states", rank % 4 != 0}},
                                        mamba3_mimo_bwd()));
  for (const std::int64_t seqlen : {31, 32, 33, 2048, 2081})
    problems.push_back(
        mamba3_problem({{"seqlen", seqlen}, {"headdim", size(2)}, {"z", true}, {"initial_states", true}},
                       mamba3_siso_bwd()));
  problems.push_back(mamba3_problem(
      {{"seqlen", size(3)}, {"headdim", size(256)}, {"dstate", size(256)}, {"rope_angles", size(128)}},
      mamba3_siso_bwd()));
  for (const auto& problem : problems)
    for (const char* distribution : {"mamba", "trained"}) {
      INFO(problem.id() << " " << distribution);
      CHECK(failures_of(problem, {.distribution = distribution}) == "");
    }
}

TEST_CASE("the gradients of cuda-chunked-f32 do not depend on the order of its threads", "[mamba3]") {
  for (const Problem& problem : mamba3_scans(mamba3_siso_bwd(), mamba3_mimo_bwd())) {
    const auto inputs = generate_inputs(problem, {}, never_stop);
    const auto first = emulated(problem, inputs, 1);
    const auto second = emulated(problem, inputs, 2);
    for (std::size_t i = 0; i < first.size(); ++i) {
      INFO(first[i].spec.name);
      CHECK(std::memcmp(first[i].buffer.data(), second[i].buffer.data(), first[i].spec.bytes()) == 0);
    }
  }
}

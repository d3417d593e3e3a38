#include <algorithm>
#include <vector>

#include "catch.h"
#include "model/implementation.h"
#include "model/problem.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"
#include "support/ssd_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

struct Options {
  std::int64_t batch, seqlen, nheads, headdim, dstate, groups;
  bool z = false, initial = false, final = false;
};

Problem problem_of(const Options& o, const OpSpec& op) {
  return ssd_problem({{"batch", o.batch},
                      {"seqlen", o.seqlen},
                      {"nheads", o.nheads},
                      {"headdim", o.headdim},
                      {"dstate", o.dstate},
                      {"groups", o.groups},
                      {"z", o.z},
                      {"initial_states", o.initial},
                      {"final_states", o.final}},
                     op);
}

/// Counted one by one: `per_pair` for each pair of steps of a chunk, and so on.
template <class Chunk>
double counted(const Options& o, Chunk chunk) {
  double fmas = 0;
  for (std::int64_t b = 0; b < o.batch; ++b)
    for (std::int64_t begin = 0; begin < o.seqlen; begin += 64) {
      const std::int64_t steps = std::min<std::int64_t>(64, o.seqlen - begin);
      std::int64_t pairs = 0;
      for (std::int64_t t = 0; t < steps; ++t)
        for (std::int64_t s = 0; s <= t; ++s) ++pairs;
      fmas +=
          static_cast<double>(chunk(steps, pairs, begin > 0 || o.initial, begin + 64 < o.seqlen || o.final));
    }
  return fmas;
}

double forward(const Options& o) {
  const std::int64_t state = o.nheads * o.headdim * o.dstate;
  return counted(o, [&](std::int64_t steps, std::int64_t pairs, bool before, bool behind) {
    return steps * state * (int{before} + int{behind}) + pairs * (o.groups * o.dstate + o.nheads * o.headdim);
  });
}

double backward(const Options& o) {
  const std::int64_t state = o.nheads * o.headdim * o.dstate;
  return counted(o, [&](std::int64_t steps, std::int64_t pairs, bool before, bool behind) {
    // adjoints and dC, and y, of what is before; dB and dx of what is behind
    return steps * state * ((2 + int{o.z}) * int{before} + 2 * int{behind}) +
           pairs * (3 * o.groups * o.dstate + (2 + int{o.z}) * o.nheads * o.headdim);
  });
}

const std::vector<Options> kAllOptions{{2, 128, 4, 3, 5, 2},
                                       {1, 64, 2, 8, 4, 1, true},
                                       {1, 1, 1, 2, 3, 1},
                                       {2, 192, 2, 4, 8, 1, true, true, true},
                                       {1, 256, 6, 2, 2, 3, false, true, false},
                                       {1, 128, 6, 2, 2, 3, true, false, true}};

}  // namespace

TEST_CASE("products of chunks are as many as counting them gives") {
  for (const auto& o : kAllOptions) {
    INFO(o.seqlen);
    const OpSpec& forward_op = ssd_chunk_scan_fwd();
    const Problem problem = problem_of(o, forward_op);
    const double updates = SsdChunkScan(problem).updates();
    // Where the last chunk has no state behind it its steps do not count, of which there are 64 here.
    const Work on_tensor_cores = forward_op.least_work(problem, Math::bf16);
    const Work in_f32 = forward_op.least_work(problem, Math::f32);
    CHECK(on_tensor_cores.tensor_flops == 2 * forward(o));
    CHECK(on_tensor_cores.fmas == 0);
    CHECK(in_f32.fmas == std::min(forward(o), 3 * updates));
    CHECK(in_f32.tensor_flops == 0);
    CHECK(on_tensor_cores.bytes == tensor_bytes(problem));
    CHECK(on_tensor_cores.exponentials == in_f32.exponentials);

    const OpSpec& backward_op = ssd_chunk_scan_bwd();
    const Problem gradients = problem_of(o, backward_op);
    const double states = static_cast<double>(o.batch * std::max<std::int64_t>(0, o.seqlen - 64) * o.nheads *
                                              o.headdim * o.dstate);
    const double products = backward(o) + states;
    CHECK(backward_op.least_work(gradients, Math::tf32).tensor_flops == 2 * products);
    CHECK(backward_op.least_work(gradients, Math::f32).fmas == std::min(products, (o.z ? 9 : 8) * updates));
  }
}

TEST_CASE("implementations on tensor cores have products to do, and no other multiply-adds") {
  for (const auto& implementation : implementations()) {
    if (implementation.name != "cuda-chunked" || !implementation.op.starts_with("ssd_")) continue;
    const Work work = least_work(implementation, problem_of(kAllOptions[0], *find_op(implementation.op)));
    CHECK(work.tensor_flops > 0);
    CHECK(work.fmas == 0);
  }
}

#pragma once

#include <vector>

#include "ops/mamba3/mamba3.h"
#include "support/axes.h"

namespace ssmbench::test {

/// A small problem of one of Mamba-3's operations; every option is off unless `axes` says otherwise.
inline Problem mamba3_problem(Axes axes, const OpSpec& op = mamba3_siso_fwd()) {
  axes.merge(Axes{{"dtype", "f32"},
                  {"batch", size(1)},
                  {"nheads", size(1)},
                  {"headdim", size(1)},
                  {"dstate", size(2)},
                  {"rope_angles", size(1)},
                  {"z", false},
                  {"D", false}});
  if (&op != &mamba3_step()) axes.emplace("seqlen", size(1));
  return {op, axes};
}

/// Four heads, where `axes` says nothing else.
inline Axes mamba3_with_sizes(Axes axes) {
  axes.merge(Axes{{"nheads", size(4)}, {"headdim", size(3)}, {"dstate", size(6)}, {"rope_angles", size(2)}});
  return axes;
}

/// Scans with every option on and off: with input and final states, packed with an empty sequence and one of a
/// single step, groups, both pairings, some pairs left alone, ranks 1 to 8.
inline std::vector<Problem> mamba3_scans(const OpSpec& siso, const OpSpec& mimo) {
  const std::vector<Axes> scans{
      {{"batch", size(2)}, {"seqlen", size(9)}, {"z", true}, {"D", true}, {"final_states", true}},
      {{"batch", size(2)}, {"seqlen", size(1)}, {"initial_states", true}, {"final_states", true}},
      {{"seqlen", size(40)},
       {"groups", size(2)},
       {"initial_states", true},
       {"final_states", true},
       {"z", true},
       {"cu_seqlens", true},
       {"sequences", size(5)}},
      {{"seqlen", size(33)}, {"groups", size(4)}, {"D", true}, {"rope_angles", size(3)}},
      {{"seqlen", size(12)}, {"cu_seqlens", true}, {"sequences", size(4)}, {"final_states", true}},
      {{"seqlen", size(12)}, {"cu_seqlens", true}, {"sequences", size(4)}, {"initial_states", true}},
  };
  std::vector<Problem> all;
  for (const char* pairing : {"interleaved", "halves"})
    for (Axes axes : scans) {
      axes["rotary_pairing"] = pairing;
      all.push_back(mamba3_problem(mamba3_with_sizes(axes), siso));
      for (const std::int64_t rank : {1, 2, 8}) {
        axes["mimo_rank"] = rank;
        axes["out_reduce"] = rank != 2;
        axes["outproj_norm"] = rank == 8 && axes.contains("z");
        all.push_back(mamba3_problem(mamba3_with_sizes(axes), mimo));
      }
    }
  return all;
}

}  // namespace ssmbench::test

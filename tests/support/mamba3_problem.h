#pragma once

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
  return {op, std::move(axes)};
}

}  // namespace ssmbench::test

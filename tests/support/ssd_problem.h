#pragma once

#include "model/problem.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"
#include "support/axes.h"

namespace ssmbench::test {

/// A small ssd_chunk_scan problem; every option is off unless `axes` says otherwise.
inline Problem ssd_problem(Axes axes = {}, const OpSpec& op = ssd_chunk_scan_fwd()) {
  axes.merge(Axes{{"dtype", "f32"},
                  {"batch", std::int64_t{1}},
                  {"seqlen", std::int64_t{1}},
                  {"nheads", std::int64_t{1}},
                  {"headdim", std::int64_t{1}},
                  {"dstate", std::int64_t{1}},
                  {"D", "none"},
                  {"z", false},
                  {"dt_bias", false},
                  {"dt_softplus", false}});
  return {op, axes};
}

}  // namespace ssmbench::test

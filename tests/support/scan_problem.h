#pragma once

#include "model/case.h"
#include "model/problem.h"
#include "ops/selective_scan/selective_scan.h"
#include "support/axes.h"

namespace ssmbench::test {

/// A small selective_scan problem; every option is off and B and C are variable unless `axes` says otherwise.
inline Problem scan_problem(Axes axes = {}, const OpSpec& op = selective_scan_fwd()) {
  axes.merge(Axes{{"dtype", "f32"},
                  {"batch", std::int64_t{1}},
                  {"dim", std::int64_t{1}},
                  {"seqlen", std::int64_t{1}},
                  {"dstate", std::int64_t{1}},
                  {"D", false},
                  {"z", false},
                  {"delta_bias", false},
                  {"delta_softplus", false}});
  return {op, axes};
}

}  // namespace ssmbench::test

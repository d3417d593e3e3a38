#pragma once

#include <cstdint>
#include <vector>

#include "reference/common/padded_rows.h"

namespace ssmbench {

/// Errors in the steps of a tile, in roundoffs.
struct SsdTileErrors {
  std::int64_t steps = 0;
  double decay = 1;      ///< Π of the decays
  double of_decays = 0;  ///< Σ of what their relative errors share
  double of_terms = 0;   ///< the largest relative error of what a step adds
  double of_order = 0;   ///< Σ of relative errors that are independent from chunk to chunk
};

/// The bound of statistical_bound.h for every element of a (rows × columns) state whose decays are scalars, and
/// what it makes of the running error analysis: once a chunk, the smaller error is what that goes on from.
///
/// With L the decay over a tile, G what the tile adds on absolute values, M − L·M_before, and h_t = (h −
/// what is added later)/L(t→), no L(t→)·|h_t| of its steps exceeds w = min(|h|, L·|h_before|) + G. So
///   D ← L·D + (Σδ)·w + β·G,    R ← max(L·R, w)
/// bound from above what statistical_bound.h adds up step by step, and the largest |h| of contiguous steps, decayed.
/// Roundings of a chunk of kLongestChunk steps are taken to conspire. At its end the magnitude, which further roundings are charged
/// at, becomes 3·R, for what is left of chunks that are over, and the terms of the last chunk one by one,
/// since an implementation's chunks may begin at any step.
class SsdLongMemory {
 public:
  SsdLongMemory(std::int64_t rows, std::int64_t columns);

  void clear();
  /// A state with these absolute values, and errors.
  void start_from(const PaddedRows<float>& magnitude, const PaddedRows<float>& error);
  /// After a tile; `sizes` is the state, whose signs do not matter. At the end of a chunk takes smaller bounds over into `magnitude` and `error`.
  void end_tile(const SsdTileErrors& tile, const PaddedRows<double>& sizes, PaddedRows<float>& magnitude,
                PaddedRows<float>& error);

  /// Whether this bound has been less than half of the other in the mean, and has taken its place.
  bool is_long() const { return is_long_; }
  /// Σ error / Σ |state| after the last tile.
  double relative_error() const { return relative_error_; }
  /// By row or column, the largest error in the last tile; infinite where the memory is not long.
  const std::vector<float>& largest_of_rows() const { return largest_of_rows_; }
  const std::vector<float>& largest_of_columns() const { return largest_of_columns_; }

 private:
  void add_tile(const SsdTileErrors& tile, const PaddedRows<double>& sizes,
                const PaddedRows<float>& magnitude);
  void find_largest(double decay, const PaddedRows<double>& sizes, const PaddedRows<float>& error);
  void end_chunk(PaddedRows<float>& magnitude, PaddedRows<float>& error);
  void take_over(PaddedRows<float>& magnitude, PaddedRows<float>& error) const;

  std::int64_t rows_, columns_;
  PaddedRows<float> size_before_, magnitude_before_;  // at the end of the last tile
  PaddedRows<float> run_, own_;                       // R; G of the chunk
  PaddedRows<float> coherent_, coherent_before_;      // D; at the end of the last chunk
  PaddedRows<float> deviation_, largest_;             // √V and its largest share, decayed
  PaddedRows<float> order_;                           // what the chunk has of SsdTileErrors::of_order
  PaddedRows<float> bound_;                           // of the error at the end of the last chunk
  std::int64_t steps_ = 0;                            // of the chunk
  double decay_ = 1;                                  // over it
  bool is_long_ = false;
  double relative_error_ = 0;
  std::vector<float> largest_of_rows_, largest_of_columns_;
};

}  // namespace ssmbench

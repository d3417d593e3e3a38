// Compiled for every instruction set that Highway knows and chosen at run time.

#include "reference/ssd_chunk_scan/tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/ssd_chunk_scan/tile.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace ssmbench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using TileLanes = hn::CappedTag<T, 64 / sizeof(T)>;
template <class T>
using TileVector = hn::Vec<TileLanes<T>>;

template <class T>
std::int64_t lanes_of() {
  return static_cast<std::int64_t>(hn::Lanes(TileLanes<T>()));
}

template <class T>
void add_to(T* at, TileVector<T> value) {
  const TileLanes<T> lanes;
  hn::Store(hn::Add(hn::Load(lanes, at), value), lanes, at);
}

/// Sums along the rows of a block, which stay vectors until all its columns are done.
template <class T>
class RowSums {
 public:
  void clear(std::int64_t steps) { std::fill_n(sums_, steps * kSsdBlockRows * kMostLanes, T{}); }
  T* at(std::int64_t step, std::int64_t row) { return sums_ + (step * kSsdBlockRows + row) * kMostLanes; }
  T total(std::int64_t step, std::int64_t row) {
    const TileLanes<T> lanes;
    return hn::GetLane(hn::SumOfLanes(lanes, hn::Load(lanes, at(step, row))));
  }
  /// Into the block's rows of an array [step][row] that begins with them.
  void store(const SsdMatrixSize& size, T* into) {
    for (std::int64_t t = 0; t < size.steps; ++t)
      for (std::int64_t i = 0; i < kSsdBlockRows; ++i) into[t * size.row_stride + i] = total(t, i);
  }

 private:
  static constexpr std::int64_t kMostLanes = 64 / sizeof(T);
  alignas(64) T sums_[kSsdTileSteps * kSsdBlockRows * kMostLanes];
};

/// Vectors of columns of a block: with four rows, the block and its sums fill the 32 registers of AVX-512.
constexpr int kValueVectors = 4;
constexpr int kBoundVectors = 2;

/// One block of SsdValues, from row p and column n.
template <bool kColumns>
void advance_block(const SsdValues& job, std::int64_t p, std::int64_t n, RowSums<double>& value,
                   RowSums<double>& squares, double* fourths) {
  const TileLanes<double> lanes;
  const std::int64_t width = lanes_of<double>();
  const SsdMatrixSize& size = job.size;
  double* matrix = job.matrix + p * size.column_stride + n;
  TileVector<double> x[kSsdBlockRows][kValueVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kSsdBlockRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kValueVectors; ++j)
      x[i][j] = hn::Load(lanes, matrix + i * size.column_stride + j * width);

  for (std::int64_t t = 0; t < size.steps; ++t) {
    const auto decay = hn::Set(lanes, job.decay[t]);
    const std::int64_t row = t * size.row_stride + p;
    TileVector<double> row_value[kSsdBlockRows];
    TileVector<double> row_squares[kSsdBlockRows];
    auto fourth = hn::Zero(lanes);
#pragma GCC unroll 8
    for (int i = 0; i < kSsdBlockRows; ++i) row_value[i] = row_squares[i] = hn::Zero(lanes);
#pragma GCC unroll 8
    for (int j = 0; j < kValueVectors; ++j) {
      const std::int64_t column = t * size.column_stride + n + j * width;
      const auto w = hn::Load(lanes, job.w + column);
      const auto r = hn::Load(lanes, job.r + column);
      const auto r_squared = hn::Load(lanes, job.r_squared + column);
      auto column_value = hn::Zero(lanes);
      auto column_squares = hn::Zero(lanes);
#pragma GCC unroll 8
      for (int i = 0; i < kSsdBlockRows; ++i) {
        x[i][j] = hn::MulAdd(decay, x[i][j], hn::Mul(hn::Set(lanes, job.v[row + i]), w));
        const auto square = hn::Mul(x[i][j], x[i][j]);
        row_value[i] = hn::MulAdd(x[i][j], r, row_value[i]);
        row_squares[i] = hn::MulAdd(square, r_squared, row_squares[i]);
        if constexpr (kColumns) {
          column_value = hn::MulAdd(x[i][j], hn::Set(lanes, job.q[row + i]), column_value);
          column_squares = hn::MulAdd(square, hn::Set(lanes, job.q_squared[row + i]), column_squares);
          fourth = hn::MulAdd(square, square, fourth);
        }
      }
      if constexpr (kColumns) {
        add_to(job.of_columns.value + column, column_value);
        add_to(job.of_columns.squares + column, column_squares);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kSsdBlockRows; ++i) {
      add_to(value.at(t, i), row_value[i]);
      add_to(squares.at(t, i), row_squares[i]);
    }
    if constexpr (kColumns) add_to(fourths + t * width, fourth);
  }

#pragma GCC unroll 8
  for (int i = 0; i < kSsdBlockRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kValueVectors; ++j)
      hn::Store(x[i][j], lanes, matrix + i * size.column_stride + j * width);
}

template <bool kColumns>
void advance_values(const SsdValues& job) {
  const SsdMatrixSize& size = job.size;
  const std::int64_t width = kValueVectors * lanes_of<double>();
  RowSums<double> value;
  RowSums<double> squares;
  alignas(64) double fourths[kSsdTileSteps * 8] = {};
  if constexpr (kColumns) {
    std::fill_n(job.of_columns.value, size.steps * size.column_stride, 0.0);
    std::fill_n(job.of_columns.squares, size.steps * size.column_stride, 0.0);
  }
  for (std::int64_t p = 0; p < size.rows; p += kSsdBlockRows) {
    value.clear(size.steps);
    squares.clear(size.steps);
    for (std::int64_t n = 0; n < size.column_stride; n += width)
      advance_block<kColumns>(job, p, n, value, squares, fourths);
    value.store(size, job.of_rows.value + p);
    squares.store(size, job.of_rows.squares + p);
  }
  if constexpr (kColumns) {
    const TileLanes<double> lanes;
    for (std::int64_t t = 0; t < size.steps; ++t)
      job.fourths[t] = hn::GetLane(hn::SumOfLanes(lanes, hn::Load(lanes, fourths + t * lanes_of<double>())));
  }
}

void advance_state(const SsdValues& job) {
  if (job.q == nullptr)
    advance_values<false>(job);
  else
    advance_values<true>(job);
}

/// One block of SsdQuadratic; `weight` of its share in the sums.
void advance_block(const SsdQuadratic& job, std::int64_t p, std::int64_t n, double weight,
                   RowSums<double>& sums) {
  const TileLanes<double> lanes;
  const std::int64_t width = lanes_of<double>();
  const SsdMatrixSize& size = job.size;
  double* matrix = job.matrix + p * size.column_stride + n;
  TileVector<double> x[kSsdBlockRows][kValueVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kSsdBlockRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kValueVectors; ++j)
      x[i][j] = hn::Load(lanes, matrix + i * size.column_stride + j * width);

  const auto share = hn::Set(lanes, weight);
  for (std::int64_t t = 0; t < size.steps; ++t) {
    const auto decay = hn::Set(lanes, job.decay[t]);
    TileVector<double> row_sum[kSsdBlockRows];
    for (auto& sum : row_sum) sum = hn::Zero(lanes);
#pragma GCC unroll 8
    for (int j = 0; j < kValueVectors; ++j) {
      const std::int64_t column = t * size.column_stride + n + j * width;
      const auto w = hn::Load(lanes, job.w + column);
      const auto r = hn::Load(lanes, job.r + column);
#pragma GCC unroll 8
      for (int i = 0; i < kSsdBlockRows; ++i) {
        const auto v = hn::Set(lanes, job.v[t * size.row_stride + p + i]);
        x[i][j] = hn::MulAdd(decay, x[i][j], hn::Mul(v, w));
        row_sum[i] = hn::MulAdd(x[i][j], r, row_sum[i]);
      }
    }
    // r of the rows, so that one vector sums up all rows
    auto sum = hn::Zero(lanes);
#pragma GCC unroll 8
    for (int i = 0; i < kSsdBlockRows; ++i)
      sum = hn::MulAdd(hn::Set(lanes, job.r[t * size.row_stride + p + i]), row_sum[i], sum);
    add_to(sums.at(t, 0), hn::Mul(share, sum));
  }

#pragma GCC unroll 8
  for (int i = 0; i < kSsdBlockRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kValueVectors; ++j)
      hn::Store(x[i][j], lanes, matrix + i * size.column_stride + j * width);
}

void advance_quadratic(const SsdQuadratic& job) {
  const SsdMatrixSize& size = job.size;
  const std::int64_t width = kValueVectors * lanes_of<double>();
  RowSums<double> sums;
  sums.clear(size.steps);
  for (std::int64_t p = 0; p < size.rows; p += kSsdBlockRows) {
    const std::int64_t diagonal = p / width * width;
    for (std::int64_t n = 0; n < diagonal; n += width) advance_block(job, p, n, 2, sums);
    advance_block(job, p, diagonal, 1, sums);
  }
  for (std::int64_t t = 0; t < size.steps; ++t) job.sum[t] = sums.total(t, 0);
}

/// Adds E·r, or its square.
template <bool kSquares>
TileVector<float> add_error(TileVector<float> sum, TileVector<float> error, TileVector<float> r) {
  if constexpr (!kSquares) return hn::MulAdd(error, r, sum);
  const auto term = hn::Mul(error, r);
  return hn::MulAdd(term, term, sum);
}

/// One block of SsdBounds.
template <bool kColumns, bool kSquares>
void advance_block(const SsdBounds& job, std::int64_t p, std::int64_t n, RowSums<float>& magnitude,
                   RowSums<float>& error) {
  const TileLanes<float> lanes;
  const std::int64_t width = lanes_of<float>();
  const SsdMatrixSize& size = job.size;
  const std::int64_t begin = p * size.column_stride + n;
  TileVector<float> m[kSsdBlockRows][kBoundVectors];
  TileVector<float> e[kSsdBlockRows][kBoundVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kSsdBlockRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kBoundVectors; ++j) {
      m[i][j] = hn::Load(lanes, job.magnitude + begin + i * size.column_stride + j * width);
      e[i][j] = hn::Load(lanes, job.error + begin + i * size.column_stride + j * width);
    }

  for (std::int64_t t = 0; t < size.steps; ++t) {
    const auto decay = hn::Set(lanes, job.decay[t]);
    const auto decay_and_error = hn::Set(lanes, job.decay_and_error[t]);
    const std::int64_t row = t * size.row_stride + p;
    TileVector<float> row_magnitude[kSsdBlockRows];
    TileVector<float> row_error[kSsdBlockRows];
#pragma GCC unroll 8
    for (int i = 0; i < kSsdBlockRows; ++i) row_magnitude[i] = row_error[i] = hn::Zero(lanes);
#pragma GCC unroll 8
    for (int j = 0; j < kBoundVectors; ++j) {
      const std::int64_t column = t * size.column_stride + n + j * width;
      const auto before = hn::Load(lanes, job.w + column);
      const auto w = hn::Load(lanes, job.w + size.column_stride + column);
      const auto r = hn::Load(lanes, job.r + column);
      auto column_magnitude = hn::Zero(lanes);
      auto column_error = hn::Zero(lanes);
#pragma GCC unroll 8
      for (int i = 0; i < kSsdBlockRows; ++i) {
        const auto fresh = hn::MulAdd(hn::Set(lanes, job.late[row + i]), before,
                                      hn::Mul(hn::Set(lanes, job.added[row + i]), w));
        e[i][j] = hn::MulAdd(decay, e[i][j], hn::MulAdd(decay_and_error, m[i][j], fresh));
        m[i][j] = hn::MulAdd(decay, m[i][j], hn::Mul(hn::Set(lanes, job.v[row + i]), w));
        row_magnitude[i] = hn::MulAdd(m[i][j], r, row_magnitude[i]);
        row_error[i] = add_error<kSquares>(row_error[i], e[i][j], r);
        if constexpr (kColumns) {
          const auto q = hn::Set(lanes, job.q[row + i]);
          column_magnitude = hn::MulAdd(m[i][j], q, column_magnitude);
          column_error = add_error<kSquares>(column_error, e[i][j], q);
        }
      }
      if constexpr (kColumns) {
        add_to(job.of_columns.magnitude + column, column_magnitude);
        add_to(job.of_columns.error + column, column_error);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kSsdBlockRows; ++i) {
      add_to(magnitude.at(t, i), row_magnitude[i]);
      add_to(error.at(t, i), row_error[i]);
    }
  }

#pragma GCC unroll 8
  for (int i = 0; i < kSsdBlockRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kBoundVectors; ++j) {
      hn::Store(m[i][j], lanes, job.magnitude + begin + i * size.column_stride + j * width);
      hn::Store(e[i][j], lanes, job.error + begin + i * size.column_stride + j * width);
    }
}

template <bool kColumns, bool kSquares>
void advance_bounds_with(const SsdBounds& job) {
  const SsdMatrixSize& size = job.size;
  const std::int64_t width = kBoundVectors * lanes_of<float>();
  RowSums<float> magnitude;
  RowSums<float> error;
  if constexpr (kColumns) {
    std::fill_n(job.of_columns.magnitude, size.steps * size.column_stride, 0.0F);
    std::fill_n(job.of_columns.error, size.steps * size.column_stride, 0.0F);
  }
  for (std::int64_t p = 0; p < size.rows; p += kSsdBlockRows) {
    magnitude.clear(size.steps);
    error.clear(size.steps);
    for (std::int64_t n = 0; n < size.column_stride; n += width)
      advance_block<kColumns, kSquares>(job, p, n, magnitude, error);
    magnitude.store(size, job.of_rows.magnitude + p);
    error.store(size, job.of_rows.error + p);
  }
}

void advance_bounds(const SsdBounds& job) {
  if (job.q == nullptr)
    job.squares ? advance_bounds_with<false, true>(job) : advance_bounds_with<false, false>(job);
  else
    job.squares ? advance_bounds_with<true, true>(job) : advance_bounds_with<true, false>(job);
}

}  // namespace ssmbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ssmbench {

HWY_EXPORT(advance_state);
HWY_EXPORT(advance_quadratic);
HWY_EXPORT(advance_bounds);

void advance_ssd(const SsdValues& job) {
  HWY_DYNAMIC_DISPATCH(advance_state)(job);
}
void advance_ssd(const SsdQuadratic& job) {
  HWY_DYNAMIC_DISPATCH(advance_quadratic)(job);
}
void advance_ssd(const SsdBounds& job) {
  HWY_DYNAMIC_DISPATCH(advance_bounds)(job);
}

}  // namespace ssmbench
#endif

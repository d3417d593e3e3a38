#pragma once

#include <cstdint>

// The inner loops of pass.h: matrices X ← decay·X + v ⊗ w over the steps of a tile. Blocks of
// a few rows by a few vectors of columns go through all steps of the tile in registers. All pointers are to
// PaddedRows, whose strides are `row_stride` for what belongs to rows, [step][row], and `column_stride` for
// what belongs to columns, [step][column], and for the matrices, [row][column].

namespace ssmbench {

/// Time steps that go through a block of the state at once.
inline constexpr std::int64_t kSsdTileSteps = 32;
/// Rows of a block; the rows of a matrix are rounded up to it.
inline constexpr std::int64_t kSsdBlockRows = 4;

struct SsdMatrixSize {
  std::int64_t steps, rows;
  std::int64_t row_stride, column_stride;
};

/// What is read from X after each step, next to X·r and q·X.
struct SsdValueReads {
  double* value;
  double* squares;  ///< Σ (X·r)² over the elements of a row or column
};
struct SsdBoundReads {
  float* magnitude;
  float* error;
};

/// A state in fp64.
struct SsdValues {
  SsdMatrixSize size;
  double* matrix;
  const double *decay, *v, *w;
  const double *r, *r_squared;  ///< of columns, for sums along rows
  const double *q, *q_squared;  ///< of rows, for sums along columns; null: there are none, nor `fourths`
  SsdValueReads of_rows, of_columns;
  double* fourths;  ///< [step]: Σ of the fourth powers of all elements
};

/// A symmetric matrix K ← decay·K + v ⊗ w with v in proportion to w. Gives rᵀ·K·r, [step].
struct SsdQuadratic {
  SsdMatrixSize size;
  double* matrix;  ///< blocks on and below the diagonal; what stands above them is not used
  const double *decay, *v, *w, *r;
  double* sum;
};

/// Magnitudes and errors of a state: with a step's errors (pass.h)
///   E ← decay·E + decay_and_error·M + added ⊗ w + late ⊗ (w of the step before)
///   M ← decay·M + v ⊗ w
struct SsdBounds {
  SsdMatrixSize size;
  float *magnitude, *error;
  const float *decay, *decay_and_error;
  const float *v, *added, *late;
  const float* w;  ///< its first row is the step before the tile
  const float *r, *q;
  SsdBoundReads of_rows, of_columns;
  bool squares = false;  ///< errors of products with E are squared before they are summed
};

void advance_ssd(const SsdValues& job);
void advance_ssd(const SsdQuadratic& job);
void advance_ssd(const SsdBounds& job);

}  // namespace ssmbench

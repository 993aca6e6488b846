// The arithmetic of the ops of ops/defs/optimizer.cc, the same for kernels of every device. A map
// holds the addresses of the operands and the numbers of one update. Begin reads scalars, which lie
// in the device's memory, and returns false if the update leaves everything as it is. Then the map
// is called for each element, in any order. Thread rule: values.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/base/host_and_device.h"

namespace weir::kernels {

// The factor of the gradient; every element of the update sees the same.
struct GradientScale {
  float scale = 1;
};

// Base of the maps whose update a negative scale leaves out.
struct ScaledMap {
  using Now = GradientScale;
  const float* scale = nullptr;
  WEIR_HOST_AND_DEVICE bool Begin(Now* now) const {
    now->scale = *scale;
    return !(now->scale < 0);
  }
};

struct LionMap : ScaledMap {
  const float* grad;
  float *weight, *momentum;
  float beta1, beta1_rest, beta2, beta2_rest;
  float decay, rate;  // decay: 1 - rate * weight_decay
  WEIR_HOST_AND_DEVICE void operator()(const Now& now, int64_t i) const {
    const float g = grad[i] * now.scale, m = momentum[i];
    const float way = m * beta1 + g * beta1_rest;
    const float step = way > 0 ? rate : way < 0 ? -rate : way * 0;  // a NaN stays
    weight[i] = weight[i] * decay - step;
    momentum[i] = m * beta2 + g * beta2_rest;
  }
};

struct AdamDirectionMap : ScaledMap {
  const float *grad, *weight;
  float *direction, *first, *second;
  float beta1_rest, beta2, beta2_rest;
  float correction1, correction2_root;  // 1 - beta1^t, sqrt(1 - beta2^t)
  float epsilon, weight_decay;
  WEIR_HOST_AND_DEVICE void operator()(const Now& now, int64_t i) const {
    const float g = grad[i] * now.scale;
    const float m = first[i] + (g - first[i]) * beta1_rest;
    const float v = second[i] * beta2 + g * g * beta2_rest;
    first[i] = m;
    second[i] = v;
    direction[i] =
        m / correction1 / (sqrtf(v) / correction2_root + epsilon) + weight[i] * weight_decay;
  }
};

struct MomentumDirectionMap : ScaledMap {
  const float* grad;
  float *direction, *momentum;
  float keep, rest;  // rest: 1 - keep
  bool nesterov;
  WEIR_HOST_AND_DEVICE void operator()(const Now& now, int64_t i) const {
    const float g = grad[i] * now.scale;
    const float m = momentum[i] + (g - momentum[i]) * rest;
    momentum[i] = m;
    direction[i] = nesterov ? g + (m - g) * keep : m;
  }
};

struct MomentOfSquaresMap : ScaledMap {
  const float* squares;
  float *now_moment, *moment;
  float share;  // of the new squares
  float count;  // squares in each sum
  WEIR_HOST_AND_DEVICE void operator()(const Now& now, int64_t i) const {
    const float square = squares[i] / count * now.scale * now.scale;
    moment[i] += (square - moment[i]) * share;
    now_moment[i] = moment[i];
  }
};

struct WeightAverageMap {
  using Now = GradientScale;
  const float *scale, *weight;
  float* average;
  float rest;     // 1 - decay
  bool is_first;  // nothing has been averaged before
  WEIR_HOST_AND_DEVICE bool Begin(Now* now) const {
    now->scale = *scale;
    return is_first || !(now->scale < 0);
  }
  WEIR_HOST_AND_DEVICE void operator()(const Now&, int64_t i) const {
    average[i] = is_first ? weight[i] : average[i] + (weight[i] - average[i]) * rest;
  }
};

enum class StepLength : uint8_t { kPlain, kLamb, kAdafactor };

struct WeightStepMap {
  struct Now {
    float length;
  };
  const float *scale, *direction, *weight_squares, *direction_squares;
  float* weight;
  StepLength by;
  float decay, rate;  // rate: with the factor of the weight
  float count, epsilon2, clip_threshold;
  WEIR_HOST_AND_DEVICE bool Begin(Now* now) const {
    now->length = rate;
    if (by == StepLength::kLamb) {
      const float of_weight = sqrtf(*weight_squares), of_way = sqrtf(*direction_squares);
      if (of_weight != 0 && of_way != 0) now->length = rate * (of_weight / of_way);
    } else if (by == StepLength::kAdafactor) {
      const float size = sqrtf(*weight_squares / count);
      const float way = sqrtf(*direction_squares / count) / clip_threshold;
      now->length = rate * (size < epsilon2 ? epsilon2 : size) / (way < 1 ? 1 : way);
    }
    return !(*scale < 0);
  }
  WEIR_HOST_AND_DEVICE void operator()(const Now& now, int64_t i) const {
    weight[i] = weight[i] * decay - direction[i] * now.length;
  }
};

struct UnitNormMap {
  struct Now {
    float factor;
  };
  const float *x, *squares;
  float* y;
  float epsilon;
  WEIR_HOST_AND_DEVICE bool Begin(Now* now) const {
    now->factor = 1 / (sqrtf(*squares) + epsilon);
    return true;
  }
  WEIR_HOST_AND_DEVICE void operator()(const Now& now, int64_t i) const {
    y[i] = x[i] * now.factor;
  }
};

struct AdafactorDirectionMap : ScaledMap {
  const float *grad, *rows, *columns, *totals;  // columns, totals: null if rows are like grad
  float* direction;
  int64_t num_rows, num_columns;  // of a matrix
  float count;                    // elements in each total
  float least_mean, least_moment;
  // `row` counts the rows of all matrices.
  WEIR_HOST_AND_DEVICE float ColumnFactor(int64_t matrix, int64_t column) const {
    const float mean = totals[matrix] / count;
    return columns[matrix * num_columns + column] / (mean < least_mean ? least_mean : mean);
  }
  WEIR_HOST_AND_DEVICE float Direction(const Now& now, float g, float moment) const {
    return g * now.scale / sqrtf(moment < least_moment ? least_moment : moment);
  }
  WEIR_HOST_AND_DEVICE void operator()(const Now& now, int64_t i) const {
    if (columns == nullptr) {
      direction[i] = Direction(now, grad[i], rows[i]);
      return;
    }
    const int64_t row = i / num_columns;
    direction[i] =
        Direction(now, grad[i], rows[row] * ColumnFactor(row / num_rows, i - row * num_columns));
  }
};

// Calls the map for elements [begin, end). A matrix needs no division for each element.
template <typename Map>
void CallForRange(const Map& map, const typename Map::Now& now, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) map(now, i);
}
inline void CallForRange(const AdafactorDirectionMap& map, const GradientScale& now, int64_t begin,
                         int64_t end) {
  if (map.columns == nullptr || begin >= end) {
    for (int64_t i = begin; i < end; ++i) map(now, i);
    return;
  }
  int64_t row = begin / map.num_columns, column = begin - row * map.num_columns;
  for (int64_t i = begin; i < end; ++row, column = 0) {
    const int64_t matrix = row / map.num_rows;
    const float of_row = map.rows[row];
    for (; column < map.num_columns && i < end; ++column, ++i)
      map.direction[i] = map.Direction(now, map.grad[i], of_row * map.ColumnFactor(matrix, column));
  }
}

}  // namespace weir::kernels

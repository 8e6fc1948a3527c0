// Rows of a tensor, one in each object of a fifo, as row_transfers.py sends them.

#pragma once

#include "lanes.h"

namespace rows {

using namespace lanes;

/// What is the same for all rows of a source.
struct Source {
    /// Elements of a row, of an object, and of the tensor up to the end of its last word.
    int length, object, tensor;
    /// Elements of the two windows that an object repeats when the tensor is shorter; else 0.
    int window;
};

/// Moves row `number` of the tensor to the beginning of its object.
template <typename T>
inline void settle(T *__restrict object, const Source &source, int number) {
    const int start = number * source.length;
    if (source.window != 0) {
        for (int i = 0; i < source.length; ++i) {
            const int element = start + i;
            object[i] = object[element < source.window ? element : element + 2 * source.window - source.tensor];
        }
        return;
    }
    const int beyond = start + source.object - source.tensor;
    if (beyond > 0)
        for (int i = 0; i < source.length; ++i)
            object[i] = object[i + beyond];
}

/// Sets what an object has behind its row.
inline void fill_behind(float *object, const Source &source, float value) {
    for (int i = source.length; i < source.object; ++i)
        object[i] = value;
}

/// Stores `function` of every vector of elements `first` to `first + count` of a row.
template <typename Function>
inline void write_part(float *__restrict out, const float *__restrict row, int first, int count, Function function) {
    // Parts are whole vectors where there are several.
    for_each(out, count, [row, first, &function](int at) { return function(load(row + first + at)); });
}

}  // namespace rows

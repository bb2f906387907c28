// Memory of a step, kept from step to step.

#pragma once

#include <cstdlib>
#include <memory>
#include <new>

#include "matmul.h"

// Memory that grows to what the largest step needed. Contents are lost when it grows.
template <typename T>
class Buffer {
  public:
    T *at_least(size_t count) {
        if (count > size_) {
            data_.reset();
            size_ = 0;
            data_.reset(static_cast<T *>(std::aligned_alloc(64, (count * sizeof(T) + 63) / 64 * 64)));
            if (!data_) throw std::bad_alloc();
            size_ = count;
        }
        return data_.get();
    }

  private:
    struct Free {
        void operator()(T *data) const { std::free(data); }
    };
    std::unique_ptr<T, Free> data_;
    size_t size_ = 0;
};

class QuantizedBuffer {
  public:
    Quantized at_least(int num_blocks, int num_rows) {
        const size_t count = (size_t)num_blocks * num_rows;
        return {q_.at_least(count * kBlockLen), scales_.at_least(count), sums_.at_least(count),
                num_rows};
    }

  private:
    Buffer<int8_t> q_;
    Buffer<float> scales_, sums_;
};

RG_INLINE int round_up(int value, int step) { return (value + step - 1) / step * step; }

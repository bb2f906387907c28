// Threads that run one step together: woken once a step, then kept in line by a spinning barrier,
// since a step has hundreds of phases of some microseconds each.

#pragma once

#include <sched.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

class Pool {
  public:
    explicit Pool(int num_threads) : num_threads_(num_threads) {
        for (int id = 1; id < num_threads; ++id) {
            threads_.emplace_back([this, id] { serve(id); });
        }
    }

    ~Pool() {
        job_ = nullptr;
        begin();
        for (auto &thread : threads_) thread.join();
    }

    int num_threads() const { return num_threads_; }

    // Runs job(thread id) on all threads, the caller's being number 0; returns when all are done.
    void run(std::function<void(int)> job) {
        job_ = std::move(job);
        begin();
        job_(0);
        barrier();
    }

    // All threads of the running job have come here. Spins: whoever is late is late by
    // microseconds, or was taken off its core, and then giving way is right.
    void barrier() {
        const unsigned round = round_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
            if (spins < kSpins) {
                pause();
            } else {
                sched_yield();
            }
        }
    }

    // Hands out [0, count) one by one: next() until it is count or more. To be reset between two
    // barriers.
    int next() { return counter_.fetch_add(1, std::memory_order_relaxed); }
    void reset() { counter_.store(0, std::memory_order_relaxed); }

  private:
    static constexpr int kSpins = 20000;

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    void begin() {
        generation_.fetch_add(1, std::memory_order_release);
        generation_.notify_all();
    }

    void serve(int id) {
        unsigned seen = 0;
        while (true) {
            generation_.wait(seen, std::memory_order_acquire);
            seen = generation_.load(std::memory_order_acquire);
            if (!job_) return;
            job_(id);
            barrier();
        }
    }

    const int num_threads_;
    std::vector<std::thread> threads_;
    std::function<void(int)> job_;
    std::atomic<unsigned> generation_{0};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<unsigned> round_{0};
    alignas(64) std::atomic<int> counter_{0};
};

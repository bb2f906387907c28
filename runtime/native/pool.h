// Threads that run one step together: woken once a step, then kept in line by a spinning barrier,
// since a step has hundreds of phases of some microseconds each.

#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;

class Pool {
  public:
    // Throws what std::thread throws where the system has no more threads.
    explicit Pool(int num_threads) : num_threads_(num_threads), num_active_(num_threads) {
        try {
            for (int id = 1; id < num_threads; ++id) {
                threads_.emplace_back([this, id] { serve(id); });
            }
        } catch (...) {
            stop();
            throw;
        }
    }

    ~Pool() { stop(); }

    int num_threads() const { return num_threads_; }
    int num_active() const { return num_active_; }

    // Runs job(thread id) on all threads, the caller's being number 0, or on the caller's alone;
    // returns when all are done, with the time that the caller waited for others. The job must not
    // throw: the others would wait for ever.
    Clock::duration run(bool on_all, const std::function<void(int)> &job) {
        waited_ = {};
        num_active_ = on_all ? num_threads_ : 1;
        job_ = &job;
        if (on_all) begin();
        job(0);
        barrier(0);
        return waited_;
    }

    // All threads of the running job have come here. Spins: whoever is late is late by
    // microseconds, or was taken off its core, and then giving way is right.
    void barrier(int thread) {
        // Read before arriving: once all have arrived the caller may set it for its next run.
        const int num_active = num_active_;
        if (num_active == 1) return;
        const unsigned round = round_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_active) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        if (!has_changed(round)) wait_long(thread, round);
    }

    // Hands out [0, count) one by one: next() until it is count or more. To be reset between two
    // barriers.
    int next() { return counter_.fetch_add(1, std::memory_order_relaxed); }
    void reset() { counter_.store(0, std::memory_order_relaxed); }

  private:
    // Some microseconds: whoever has not come by then may be waiting for this core.
    static constexpr int kSpins = 300;

    bool has_changed(unsigned round) const {
        for (int spins = 0; spins < kSpins; ++spins) {
            if (round_.load(std::memory_order_acquire) != round) return true;
            pause();
        }
        return false;
    }

    void wait_long(int thread, unsigned round) {
        const auto start = Clock::now();
        while (!has_changed(round)) sched_yield();
        if (thread == 0) waited_ += Clock::now() - start;
    }

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    void stop() {
        job_ = nullptr;
        begin();
        for (auto &thread : threads_) thread.join();
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
            (*job_)(id);
            barrier(id);
        }
    }

    const int num_threads_;
    std::vector<std::thread> threads_;
    int num_active_;
    const std::function<void(int)> *job_ = nullptr;
    Clock::duration waited_{};
    std::atomic<unsigned> generation_{0};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<unsigned> round_{0};
    alignas(64) std::atomic<int> counter_{0};
};

// Whether the next step is worth all threads. A thread that is taken off its core holds up all
// others at every barrier: beside busy processes one thread alone is faster. More than half of the
// time spent waiting means so; then one thread works for a while, longer each time, and all are
// tried again. On two cores beside a busy process a step of 10 ms took 200 ms with both threads and
// 20 ms with one.
class ThreadChoice {
  public:
    bool wants_all() const { return Clock::now() >= alone_until_; }

    // After a step of all threads.
    void note(Clock::duration took, Clock::duration waited) {
        const double share = took.count() > 0 ? (double)waited.count() / (double)took.count() : 0.0;
        waiting_share_ += kSmoothing * (share - waiting_share_);
        if (waiting_share_ > kMaxWaitingShare || share > kHopelessShare) {
            alone_until_ = Clock::now() + alone_for_;
            alone_for_ = std::min(2 * alone_for_, kMaxAlone);
            waiting_share_ = kMaxWaitingShare / 2;
            num_good_ = 0;
        } else if (++num_good_ >= kGoodSteps) {
            alone_for_ = kMinAlone;
            num_good_ = 0;
        }
    }

  private:
    static constexpr double kMaxWaitingShare = 0.5, kHopelessShare = 0.8, kSmoothing = 0.3;
    static constexpr Clock::duration kMinAlone = std::chrono::milliseconds(100);
    static constexpr Clock::duration kMaxAlone = std::chrono::seconds(8);
    static constexpr int kGoodSteps = 64;

    double waiting_share_ = 0.0;
    Clock::time_point alone_until_{};
    Clock::duration alone_for_ = kMinAlone;
    int num_good_ = 0;
};

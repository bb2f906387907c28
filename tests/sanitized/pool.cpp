// Steps on all threads and on one in turn, for the compiler's thread sanitizer. What the threads
// wrote before a barrier, all read after it.

#include "../../runtime/native/pool.h"

#include <cstdio>

int main() {
    constexpr int kNumThreads = 3, kNumSteps = 300;
    Pool pool(kNumThreads);
    int counts[kNumThreads] = {};
    int num_wrong = 0;
    for (int step = 0; step < kNumSteps; ++step) {
        const bool on_all = step % 3 != 0;
        pool.run(on_all, [&](int thread) {
            for (int phase = 0; phase < 3; ++phase) {
                counts[thread] = step + phase;
                pool.barrier(thread);
                int sum = 0;
                for (int other = 0; other < pool.num_active(); ++other) sum += counts[other];
                if (thread == 0) num_wrong += sum != pool.num_active() * (step + phase);
                pool.barrier(thread);
            }
        });
    }
    return num_wrong ? fprintf(stderr, "%d wrong sums\n", num_wrong), 1 : 0;
}

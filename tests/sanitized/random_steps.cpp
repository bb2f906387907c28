// Random small models over random ragged batches, for the compiler's sanitizers: every buffer is as
// large as its documentation says and no larger. Argument: how many models.

#include "../../runtime/native/step.cpp"

#include <cstdio>
#include <random>

namespace {

constexpr int kMaxLen = 700, kNumPages = 400;

class Random {
  public:
    explicit Random(int seed) : engine_(seed) {}
    int between(int least, int most) { return least + (int)(engine_() % (most - least + 1)); }
    bool chance(int one_in) { return between(1, one_in) == 1; }
    float number() { return (float)between(-10000, 10000) / 10000.0f; }
    uint32_t word() { return engine_(); }
    std::mt19937 &engine() { return engine_; }

  private:
    std::mt19937 engine_;
};

// Memory of exactly the asked size, so that the sanitizer sees the first byte beyond it.
class Memory {
  public:
    template <typename T>
    T *take(size_t count) {
        blocks_.emplace_back(new char[count * sizeof(T)]());
        return reinterpret_cast<T *>(blocks_.back().get());
    }
    template <typename T>
    const T *copy(const std::vector<T> &values) {
        T *to = take<T>(values.size());
        std::copy(values.begin(), values.end(), to);
        return to;
    }

  private:
    std::vector<std::unique_ptr<char[]>> blocks_;
};

class RandomModel {
  public:
    RandomModel(Random &random, Memory &memory) : random_(random), memory_(memory) {
        m_.num_layers = random.between(1, 3);
        m_.hidden_size = 16 * random.between(1, 9);
        m_.num_kv_heads = random.between(1, 3);
        const int group_size = random.chance(4) ? random.between(1, 64) : random.between(1, 7);
        m_.num_heads = group_size * m_.num_kv_heads;
        m_.head_dim = group_size > 16 ? 16 : random.chance(8) ? 256 : 16 * random.between(1, 8);
        m_.ffn_size = round_up(random.between(1, 100), 32);
        m_.vocab_size = random.between(1, 200);
        m_.page_size = 16 * random.between(1, 4);
        m_.is_gelu = random.chance(2);
        if (random.chance(2)) add_experts();
        m_.norm_eps = 1e-6f;
        m_.attention_scale = 0.3f;
        m_.embedding_scale = 1.0f;
        m_.attention_softcap = random.chance(3) ? 5.0f : 0.0f;
        m_.logit_softcap = random.chance(3) ? 5.0f : 0.0f;
        m_.embedding = matrix(m_.vocab_size, m_.hidden_size);
        m_.output = random.chance(2) ? m_.embedding : matrix(m_.vocab_size, m_.hidden_size);
        m_.final_norm = floats(m_.hidden_size);
        const size_t table_len = (size_t)kMaxLen * m_.head_dim / 2;
        cos_ = floats(table_len), sin_ = floats(table_len);
        Layer *layers = memory.take<Layer>(m_.num_layers);
        for (int i = 0; i < m_.num_layers; ++i) layers[i] = layer();
        m_.layers = layers;
    }

    const Model &model() const { return m_; }

  private:
    void add_experts() {
        m_.num_experts = random_.between(1, 6);
        m_.num_used_experts = random_.between(1, m_.num_experts);
        m_.expert_ffn_size = round_up(random_.between(1, 70), 32);
        m_.normalize_experts = random_.chance(2);
    }

    const float *floats(size_t count, float factor = 1.0f) {
        float *to = memory_.take<float>(count);
        for (size_t i = 0; i < count; ++i) to[i] = factor * random_.number();
        return to;
    }

    const float *maybe(size_t count) { return random_.chance(2) ? floats(count) : nullptr; }

    Matrix matrix(int num_outputs, int num_inputs) {
        Matrix made{};
        made.bits = random_.chance(2) ? 4 : 8;
        made.scale = 1.0f / (float)(1 << made.bits);
        made.num_outputs = round_up(num_outputs, kTileRows);
        made.num_blocks = round_up(num_inputs, kBlockLen) / kBlockLen;
        const int bytes = block_bytes(made.bits);
        const int num_blocks = made.num_outputs / kTileRows * made.num_blocks;
        uint8_t *data = memory_.take<uint8_t>((size_t)num_blocks * bytes);
        made.data = data;
        for (int block = 0; block < num_blocks; ++block, data += bytes) {
            for (int i = 0; i < bytes; ++i) data[i] = (uint8_t)random_.word();
            // The high byte of a half: 0.5 to 1 for d, about minus half of the levels for m.
            for (int i = bytes - 63; i < bytes - 32; i += 2) data[i] = 0x39;
            for (int i = bytes - 31; i < bytes; i += 2) data[i] = made.bits == 4 ? 0xc5 : 0xd5;
        }
        return made;
    }

    Layer layer() {
        Layer made{};
        const int heads_size = m_.num_heads * m_.head_dim;
        const int qkv_size = heads_size + 2 * m_.num_kv_heads * m_.head_dim;
        made.qkv = matrix(qkv_size, m_.hidden_size);
        made.attention_output = matrix(m_.hidden_size, heads_size);
        made.attention_norm = floats(m_.hidden_size);
        made.ffn_norm = floats(m_.hidden_size);
        made.qkv_bias = maybe(qkv_size);
        made.attention_output_bias = maybe(m_.hidden_size);
        made.q_norm = maybe(m_.head_dim);
        made.k_norm = maybe(m_.head_dim);
        made.post_attention_norm = maybe(m_.hidden_size);
        made.post_ffn_norm = maybe(m_.hidden_size);
        made.cos = cos_, made.sin = sin_, made.num_rotary = m_.head_dim;
        made.window = random_.chance(2) ? random_.between(1, 100) : 0;
        made.has_experts = m_.num_experts > 0 && !random_.chance(3);
        add_feed_forwards(made);
        const size_t num_slots = (size_t)kNumPages * m_.page_size;
        made.keys = memory_.take<uint32_t>(num_slots * m_.num_kv_heads * m_.head_dim / 2);
        made.values = memory_.take<uint32_t>(num_slots * m_.num_kv_heads * m_.head_dim / 2);
        return made;
    }

    // One router in four gives numbers that are none: its layer may be wrong, not out of bounds.
    void add_feed_forwards(Layer &to) {
        const int count = to.has_experts ? m_.num_experts : 1;
        const int size = to.has_experts ? m_.expert_ffn_size : m_.ffn_size;
        FeedForward *ffns = memory_.take<FeedForward>(count);
        for (int i = 0; i < count; ++i) {
            ffns[i] = {matrix(2 * size, m_.hidden_size), matrix(m_.hidden_size, size)};
        }
        to.ffns = ffns;
        if (!to.has_experts) return;
        to.router = floats((size_t)count * m_.hidden_size, random_.chance(4) ? NAN : 1.0f);
    }

    Random &random_;
    Memory &memory_;
    Model m_{};
    const float *cos_ = nullptr, *sin_ = nullptr;
};

// Rows of prompts and of one token, some behind a prefix that they share, some at the very end of
// the context, some without any token.
class RandomBatch {
  public:
    RandomBatch(Random &random, Memory &memory, const Model &model) : random_(random) {
        free_pages_.resize(kNumPages);
        for (int page = 0; page < kNumPages; ++page) free_pages_[page] = page;
        std::shuffle(free_pages_.begin(), free_pages_.end(), random.engine());
        for (int i = random.between(0, 7); i > 0; --i) prefix_.push_back(take_page());
        const int num_rows = random.between(0, random.chance(4) ? 40 : 8);
        for (int row = 0; row < num_rows; ++row) add_row(model);
        batch.num_rows = (int)row_tokens_.size();
        batch.num_tokens = (int)tokens_.size();
        batch.num_sampled = (int)sampled_.size();
        batch.token_ids = memory.copy(tokens_);
        batch.row_tokens = memory.copy(row_tokens_);
        batch.row_starts = memory.copy(row_starts_);
        batch.row_pages = memory.copy(row_pages_);
        batch.pages = memory.copy(pages_);
        batch.sampled = memory.copy(sampled_);
        batch.logits = memory.take<float>(sampled_.size() * model.vocab_size);
    }

    Batch batch{};

  private:
    int take_page() {
        const int page = free_pages_.back();
        free_pages_.pop_back();
        return page;
    }

    void add_row(const Model &model) {
        const int num_tokens = random_.chance(3) ? random_.between(0, 45) : 1;
        const int prefix_pages = random_.chance(2) ? (int)prefix_.size() : 0;
        const int before = random_.between(0, random_.chance(3) ? 240 : 30);
        int start = std::min(prefix_pages * model.page_size + before, kMaxLen - num_tokens);
        if (random_.chance(20)) start = kMaxLen - num_tokens;
        const int num_pages = round_up(start + num_tokens, model.page_size) / model.page_size;
        if (num_pages - prefix_pages > (int)free_pages_.size()) return;
        row_pages_.push_back((int32_t)pages_.size());
        for (int page = 0; page < num_pages; ++page) {
            pages_.push_back(page < prefix_pages ? prefix_[page] : take_page());
        }
        row_starts_.push_back(start);
        row_tokens_.push_back(num_tokens);
        for (int i = 0; i < num_tokens; ++i) {
            if (random_.chance(3)) sampled_.push_back((int32_t)tokens_.size());
            tokens_.push_back(random_.between(0, model.vocab_size - 1));
        }
    }

    Random &random_;
    std::vector<int> free_pages_, prefix_;
    std::vector<int32_t> tokens_, row_tokens_, row_starts_, row_pages_, pages_, sampled_;
};

void choose_tokens(Random &random, Memory &memory, const Batch &batch, int vocab_size) {
    std::vector<Choice> choices(batch.num_sampled);
    const int num_words = round_up(vocab_size, 32) / 32;
    for (Choice &choice : choices) {
        uint32_t *mask = memory.take<uint32_t>(num_words);
        for (int word = 0; word < num_words; ++word) mask[word] = random.word();
        choice.mask = random.chance(2) ? mask : nullptr;
        choice.temperature = random.chance(3) ? 0.0f : 1.0f;
        choice.top_k = random.chance(2) ? random.between(1, 50) : 0;
        choice.top_p = random.chance(2) ? 0.9f : 1.0f;
        choice.min_p = random.chance(2) ? 0.1f : 0.0f;
    }
    rg_choose(batch.logits, batch.num_sampled, vocab_size, memory.copy(choices),
              memory.take<int32_t>(batch.num_sampled), memory.take<float>(batch.num_sampled));
}

bool score_tokens(Random &random, Memory &memory, void *decoder, const Batch &batch,
                  int vocab_size) {
    std::vector<int32_t> places, token_ids;
    for (int place = 0; place < batch.num_tokens; ++place) {
        if (random.chance(2)) continue;
        places.push_back(place);
        token_ids.push_back(random.between(0, vocab_size - 1));
    }
    const int num_best = random.chance(3) ? vocab_size : random.between(0, std::min(9, vocab_size));
    const Scores scores{(int)places.size(),
                        num_best,
                        random.between(1, 20),
                        memory.copy(places),
                        memory.copy(token_ids),
                        memory.take<float>(places.size()),
                        memory.take<float>(places.size() * num_best),
                        memory.take<int32_t>(places.size() * num_best)};
    return places.empty() || rg_score(decoder, &scores);
}

bool run_model(int seed) {
    Random random(seed);
    Memory memory;
    const RandomModel made(random, memory);
    const Model &model = made.model();
    void *decoder = rg_create(&model, random.between(1, 4));
    for (int step = 0; step < 6; ++step) {
        const RandomBatch made_batch(random, memory, model);
        if (!rg_step(decoder, &made_batch.batch)) return false;
        choose_tokens(random, memory, made_batch.batch, model.vocab_size);
        if (!score_tokens(random, memory, decoder, made_batch.batch, model.vocab_size)) return false;
        const Layer &layer = model.layers[0];
        const PagedKv kv{layer.keys, layer.values, model.num_kv_heads, model.head_dim,
                         model.page_size};
        rg_copy_slots(&kv, random.between(0, kNumPages - 1), random.between(0, kNumPages - 1),
                      random.between(0, model.page_size));
    }
    rg_destroy(decoder);
    return true;
}

}  // namespace

int main(int, char **arguments) {
    for (int seed = 0; seed < atoi(arguments[1]); ++seed) {
        if (!run_model(seed)) return fprintf(stderr, "model %d: a step failed\n", seed), 1;
    }
}

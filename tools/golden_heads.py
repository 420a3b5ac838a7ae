"""Tiny prediction heads in files of their own, and what llama.cpp drafts with them.

Used by tools/make_goldens.py --heads. A pair of files becomes testdata/heads/NAME.json (both
recipes, the tokens and the positions) and NAME.f32: for each position, the head's logits after the
tokens before it, at DEPTH steps of its own draft.
"""

import math

import numpy

from golden_models import FFN, HEADS, KV_HEADS, LLAMA_CPP, VOCABULARY, WIDTH, Model

LOCAL, GLOBAL, WINDOW, OWN = 8, 16, 20, 24  # widths of heads, the window, the head's stream
DEPTH, CONTEXT = 3, 512
POSITIONS = [2, 7, 19, 20, 21, 63, 64, 128, 255, 299]


def attention_keys(pattern):
    return {"attention.sliding_window_pattern": pattern, "attention.sliding_window": WINDOW,
            "attention.key_length": GLOBAL, "attention.value_length": GLOBAL,
            "attention.key_length_swa": LOCAL, "attention.value_length_swa": LOCAL,
            "rope.freq_base_swa": 500.0, "rope.dimension_count": GLOBAL,
            "rope.dimension_count_swa": LOCAL}


def layer(model, blk, width, head, kv_heads):
    def matrix(name, n_in, n_out):
        model.matrix(blk + name, n_in, n_out)

    for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
        model.norm(blk + name, width)
    matrix("attn_q", width, HEADS * head)
    model.norm(blk + "attn_q_norm", head)
    if kv_heads:
        matrix("attn_k", width, kv_heads * head)
        matrix("attn_v", width, kv_heads * head)
        model.norm(blk + "attn_k_norm", head)
    matrix("attn_output", HEADS * head, width)
    for part in ("gate", "up"):
        matrix("ffn_" + part, width, FFN)
    matrix("ffn_down", FFN, width)
    model.tensor(blk + "layer_output_scale.weight", [1], 0.7, 1.2)


def gemma4():
    pattern = [True, False, True, False, True, False]
    model = Model("gemma4", layers=6, **attention_keys(pattern), **{
        "attention.shared_kv_layers": 2, "embedding_length_per_layer_input": 0,
        "final_logit_softcapping": 30.0}).ends(tied=True)
    model.tensor("rope_freqs.weight", [GLOBAL // 2], 1.0, 6.0)
    for i, local in enumerate(pattern):
        layer(model, f"blk.{i}.", WIDTH, LOCAL if local else GLOBAL, KV_HEADS if i < 4 else 0)
    return model.done()


def gemma4_assistant():
    pattern = [True, True, False]
    model = Model("gemma4-assistant", layers=3, seed=2, **attention_keys(pattern), **{
        "embedding_length": OWN, "embedding_length_out": WIDTH, "nextn_predict_layers": 3,
        "attention.shared_kv_layers": 3})
    limit = round(2 * math.sqrt(3 / OWN), 4)
    model.tensor("token_embd.weight", [OWN, VOCABULARY], -limit, limit)
    model.norm("output_norm", OWN)
    model.matrix("nextn.pre_projection", 2 * WIDTH, OWN)
    model.matrix("nextn.post_projection", OWN, WIDTH)
    model.tensor("rope_freqs.weight", [GLOBAL // 2], 1.0, 6.0)
    for i, local in enumerate(pattern):
        layer(model, f"blk.{i}.", OWN, LOCAL if local else GLOBAL, 0)
    return model.done()


HEADS_OF = {"gemma4-assistant": (gemma4, gemma4_assistant)}


class Drafts:
    """A model and its head in llama.cpp, which computes one token of a text at a time."""

    def __init__(self, api, model_path, head_path):
        import llama_cpp.llama_cpp_ext as ext
        self.api, self.ext = api, ext
        self.models = [api.llama_model_load_from_file(str(path).encode(),
                                                      api.llama_model_default_params())
                       for path in (model_path, head_path)]
        if not all(self.models):
            raise RuntimeError("llama.cpp cannot load the files: set GOLDENS_LOG to see why")
        self.target = self.context(self.models[0], None)
        self.head = self.context(self.models[1], self.target)
        ext.llama_set_embeddings_nextn(self.target, True, False)
        ext.llama_set_embeddings_nextn(self.head, True, True)

    def context(self, model, other):
        params = self.api.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = CONTEXT
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = 0  # F32
        params.flash_attn_type = 0
        params.swa_full = True
        if other is not None:
            params.ctx_other = other
        context = self.api.llama_init_from_model(model, params)
        if not context:
            raise RuntimeError("llama.cpp makes no context: set GOLDENS_LOG to see why")
        return context

    def decode(self, context, token, position, hidden=None):
        import ctypes
        batch = self.api.llama_batch_init(1, 0, 1)
        batch.n_tokens = 1
        batch.token[0], batch.pos[0], batch.n_seq_id[0] = token, position, 1
        batch.seq_id[0][0], batch.logits[0] = 0, 1
        if hidden is not None:
            values = numpy.ascontiguousarray(hidden, numpy.float32)
            batch.embd = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        if self.api.llama_decode(context, batch) != 0:
            raise RuntimeError(f"llama.cpp cannot compute position {position}")
        batch.embd = ctypes.POINTER(ctypes.c_float)()
        self.api.llama_batch_free(batch)
        rows = numpy.ctypeslib.as_array(self.api.llama_get_logits(context), (1, VOCABULARY))
        own = self.ext.llama_get_embeddings_nextn_ith(context, 0)
        own = numpy.ctypeslib.as_array(ctypes.cast(own, ctypes.POINTER(ctypes.c_float)), (WIDTH,))
        return rows[0].astype(numpy.float32, copy=True), own.astype(numpy.float32, copy=True)

    def draft(self, token, position, hidden):
        rows = []
        for _ in range(DEPTH):
            logits, hidden = self.decode(self.head, token, position, hidden)
            rows.append(logits)
            token = int(logits.argmax())
        return numpy.stack(rows)

    def close(self):
        for context in (self.head, self.target):
            self.api.llama_free(context)
        for model in self.models:
            self.api.llama_model_free(model)


def drafts_of(api, model_path, head_path, tokens):
    """The head's rows at POSITIONS. The last token is read by the head alone."""
    drafts = Drafts(api, model_path, head_path)
    rows = []
    for position, token in enumerate(tokens):
        if position in POSITIONS:
            rows.append(drafts.draft(token, position, hidden))
        _, hidden = drafts.decode(drafts.target, token, position)
    drafts.close()
    return numpy.concatenate(rows)

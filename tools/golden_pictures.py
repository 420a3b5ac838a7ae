"""Prompts with a picture: what llama.cpp computes for tiny models with the rows of its own encoder.

Used by tools/make_goldens.py --pictures. Each pair of shapes becomes testdata/pictures/NAME.json
(the shapes, the picture's size, and the tokens before and after it) and NAME.f32: the logits after
each token after the picture. The models are made by $WEFT_MAKE_MODEL (build/release/weft-make-model).

As published, llama.cpp's encoders differ by about 1e-3: the library has to be built without
GGML_GELU_FP16 and GGML_GELU_QUICK_FP16 (ggml-cpu/vec.h), with pixels in float (ggml_im2col's type
in ggml_conv_2d), and with FFN_GELU_ERF in the projectors of Qwen's (tools/mtmd/models).
MTMD_CPP_LIB chooses the library, as LLAMA_CPP_LIB_PATH does the other.
"""

import ctypes
import os
import subprocess

import numpy

SIZES = {"embd": 32, "heads": 2, "kv-heads": 1, "head-dim": 16, "ffn": 64}
# By name: the shapes of the model and of the projector, the picture's size.
PICTURES_OF = {
    "gemma3": ("tiny-gemma3", "tiny-gemma3-mmproj", 112, 112),
    "qwen2.5vl": ("tiny-qwen2vl", "tiny-qwen2.5vl-mmproj", 308, 168),
    "qwen3vl": ("tiny-qwen3vl", "tiny-qwen3vl-mmproj", 140, 84),
}
BEFORE, AFTER = [7, 44, 81, 118, 155, 192, 229], [10, 47, 84, 121, 158, 195]
IMAGE = 1  # a chunk's type


def make_file(path, shape, sizes=None):
    maker = os.environ.get("WEFT_MAKE_MODEL", "build/release/weft-make-model")
    options = [text for name, value in (sizes or {}).items() for text in (f"--{name}", str(value))]
    subprocess.run([maker, "--shape", shape, "--type", "F32", "--out", str(path), *options],
                   check=True, stdout=subprocess.DEVNULL)


def pattern(width, height):
    """The pixels of tests/conformance/picture_logits_test.cc."""
    y, x, c = numpy.mgrid[0:height, 0:width, 0:3]
    return ((x * 31 + y * 17 + c * 71 + x * y % 53 * (c + 1)) % 256).astype(numpy.uint8)


def decode(api, context, tokens, position):
    batch = api.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position + i, 1
        batch.seq_id[i][0], batch.logits[i] = 0, 1
    if api.llama_decode(context, batch) != 0:
        raise RuntimeError("llama.cpp cannot compute the tokens")
    api.llama_batch_free(batch)


def picture_chunk(mtmd, eyes, pixels):
    """The picture among the chunks of a prompt that has nothing else."""
    height, width, _ = pixels.shape
    data = (ctypes.c_uint8 * pixels.size).from_buffer_copy(pixels.tobytes())
    bitmap = mtmd.mtmd_bitmap_init(width, height, data)
    chunks = mtmd.mtmd_input_chunks_init()
    marker = mtmd.mtmd_get_marker(eyes)
    text = mtmd.mtmd_input_text(text=marker, text_len=len(marker), add_special=False,
                                parse_special=True)
    if mtmd.mtmd_tokenize(eyes, chunks, ctypes.byref(text),
                          (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap), 1) != 0:
        raise RuntimeError("mtmd cannot prepare the picture")
    all_chunks = [mtmd.mtmd_input_chunks_get(chunks, i)
                  for i in range(mtmd.mtmd_input_chunks_size(chunks))]
    return next(c for c in all_chunks if mtmd.mtmd_input_chunk_get_type(c) == IMAGE)


def logits_of(api, model_path, projector_path, width, height):
    """The logits after each token of AFTER: one thread, float32 caches, plain attention."""
    from llama_cpp import mtmd_cpp as mtmd
    model = api.llama_model_load_from_file(str(model_path).encode(),
                                           api.llama_model_default_params())
    params = api.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = params.flash_attn_type = 0  # F32, and none
    params.swa_full = True
    context = api.llama_init_from_model(model, params)
    of_eyes = mtmd.mtmd_context_params_default()
    of_eyes.use_gpu, of_eyes.n_threads, of_eyes.flash_attn_type = False, 1, 0
    of_eyes.warmup, of_eyes.image_min_tokens = False, 1
    eyes = mtmd.mtmd_init_from_file(str(projector_path).encode(), model, of_eyes)
    if not (model and context and eyes):
        raise RuntimeError("llama.cpp cannot load the files: set GOLDENS_LOG to see why")
    decode(api, context, BEFORE, 0)
    position = api.llama_pos(0)
    chunk = picture_chunk(mtmd, eyes, pattern(width, height))
    if mtmd.mtmd_helper_eval_chunk_single(eyes, context, chunk, len(BEFORE), 0, 512, False,
                                          ctypes.byref(position)) != 0:
        raise RuntimeError("mtmd cannot compute the picture")
    decode(api, context, AFTER, position.value)
    n_vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
    rows = numpy.ctypeslib.as_array(api.llama_get_logits(context), (len(AFTER), n_vocab))
    rows = rows.astype(numpy.float32, copy=True)
    api.llama_free(context)
    mtmd.mtmd_free(eyes)
    api.llama_model_free(model)
    return rows

// Writes the tokenizer bundle of a model file, for the test that reads it:
//
//   write_tokenizer_bundle MODEL OUT.zip
#include <cstdio>
#include <fstream>
#include <iostream>

#include "doors/grpc/tokenizer_bundle.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: write_tokenizer_bundle MODEL OUT.zip\n";
    return 2;
  }
  const auto file = weft::ModelFile::Open(argv[1]);
  if (!file.ok()) {
    std::cerr << file.status().message() << "\n";
    return 1;
  }
  const auto bundle = weft::serve::BuildTokenizerBundle(**file, "{{ bos_token }}", 1024);
  if (!bundle.ok()) {
    std::cerr << bundle.status().message() << "\n";
    return 1;
  }
  std::ofstream out(argv[2], std::ios::binary);
  out << bundle->zip << std::flush;
  return out.good() ? 0 : 1;
}

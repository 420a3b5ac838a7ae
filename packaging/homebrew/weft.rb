# Builds Weft from source. Written for Homebrew and not tried on a Mac yet.
#
#   brew install --HEAD packaging/homebrew/weft.rb     # in a clone
class Weft < Formula
  desc "Inference server for many conversations on one language model"
  license "Apache-2.0"
  head "file://#{File.expand_path("../..", __dir__)}", using: :git, branch: "main"

  depends_on "boost" => :build
  depends_on "cli11" => :build
  depends_on "cmake" => :build
  depends_on "googletest" => :build
  depends_on "ninja" => :build
  depends_on "nlohmann-json" => :build
  depends_on "pkgconf" => :build
  depends_on "abseil"
  depends_on "grpc"
  depends_on "jpeg-turbo"
  depends_on "libpng"
  depends_on "openssl@3"
  depends_on "prometheus-cpp"
  depends_on "protobuf"
  depends_on "re2"
  depends_on "utf8proc"
  depends_on "webp"
  depends_on "xxhash"
  depends_on "zstd"

  def install
    system "cmake", "--preset", "release", "-DWEFT_TESTS=OFF", *std_cmake_args
    system "cmake", "--build", "build/release", "--target", "weft", "weft-quantize",
           "weft-make-model", "weft_documents"
    system "cmake", "--install", "build/release", "--component", "program"
  end

  service do
    run [opt_bin/"weft", "serve", "--no-built-in", "--state-dir", var/"weft"]
    keep_alive crashed: true
  end

  test do
    assert_match "Tom", shell_output("#{bin}/weft run -m box -n 12 --temp 0 'My name is Tom. What is my name?'")
  end
end

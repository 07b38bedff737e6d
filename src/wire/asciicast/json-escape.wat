;; Escapes text as the content of a JSON string, 32 bytes at a time.
;;
;;   memory       0  table: the output for each ASCII byte, at most 7 bytes, and then the length of the output
;;            65536  input: the text, at most 65,536 bytes
;;           131072  output: at most 6 bytes for each input byte
;;
;; The program first finds all bytes of a block of 32 bytes that must be escaped, and then escapes them. The checks do
;; not depend on each other, so the CPU runs them in parallel.
;;
;; `scripts/generate-wasm.ts` compiles this file to `json-escape-module.ts`.
(module
  (memory (export "memory") 9)

  ;; @param length of the text, in bytes
  ;; @result length of the output, in bytes
  (func (export "escape") (param $length i32) (result i32)
    (local $in i32) (local $end i32) (local $out i32)
    (local $piece v128) (local $more v128) (local $marks i32) (local $count i32)
    (local $from i32) (local $at i32) (local $escaped i64)
    (local.set $in (i32.const 65536))
    (local.set $end (i32.add (local.get $in) (local.get $length)))
    (local.set $out (i32.const 131072))
    (loop $next
      (local.set $count (i32.sub (local.get $end) (local.get $in)))
      (if (i32.eqz (local.get $count))
        (then (return (i32.sub (local.get $out) (i32.const 131072)))))
      ;; copies all 32 bytes; the escaped forms later overwrite the bytes that must be escaped
      (local.set $piece (v128.load (local.get $in)))
      (local.set $more (v128.load offset=16 (local.get $in)))
      (v128.store (local.get $out) (local.get $piece))
      (v128.store offset=16 (local.get $out) (local.get $more))
      ;; sets one bit for each control character (0x00 to 0x1f), quotation mark and backslash
      (local.set $marks
        (i32.or
          (i8x16.bitmask
            (v128.or
              (i8x16.eq (local.get $piece) (i8x16.min_u (local.get $piece) (i8x16.splat (i32.const 0x1f))))
              (v128.or
                (i8x16.eq (local.get $piece) (i8x16.splat (i32.const 0x22)))
                (i8x16.eq (local.get $piece) (i8x16.splat (i32.const 0x5c))))))
          (i32.shl
            (i8x16.bitmask
              (v128.or
                (i8x16.eq (local.get $more) (i8x16.min_u (local.get $more) (i8x16.splat (i32.const 0x1f))))
                (v128.or
                  (i8x16.eq (local.get $more) (i8x16.splat (i32.const 0x22)))
                  (i8x16.eq (local.get $more) (i8x16.splat (i32.const 0x5c))))))
            (i32.const 16))))
      ;; ignores bytes after the end of the text
      (if (i32.lt_u (local.get $count) (i32.const 32))
        (then
          (local.set $marks
            (i32.and
              (local.get $marks)
              (i32.sub (i32.shl (i32.const 1) (local.get $count)) (i32.const 1)))))
        (else (local.set $count (i32.const 32))))
      (local.set $from (local.get $in))
      (if (local.get $marks)
        (then
          (loop $each
            (local.set $at (i32.add (local.get $in) (i32.ctz (local.get $marks))))
            (local.set $out (i32.add (local.get $out) (i32.sub (local.get $at) (local.get $from))))
            (local.set $escaped (i64.load (i32.shl (i32.load8_u (local.get $at)) (i32.const 3))))
            (i64.store (local.get $out) (local.get $escaped))
            (local.set $out
              (i32.add (local.get $out) (i32.wrap_i64 (i64.shr_u (local.get $escaped) (i64.const 56)))))
            ;; copies the bytes after the escaped byte; the next escaped form overwrites the excess
            (local.set $from (i32.add (local.get $at) (i32.const 1)))
            (v128.store (local.get $out) (v128.load (local.get $from)))
            (v128.store offset=16 (local.get $out) (v128.load offset=16 (local.get $from)))
            ;; clears the lowest bit
            (local.set $marks (i32.and (local.get $marks) (i32.sub (local.get $marks) (i32.const 1))))
            (br_if $each (local.get $marks)))))
      (local.set $in (i32.add (local.get $in) (local.get $count)))
      (local.set $out (i32.add (local.get $out) (i32.sub (local.get $in) (local.get $from))))
      (br $next))
    (unreachable))
)

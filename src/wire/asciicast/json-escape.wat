;; Copies text as the inside of a JSON string: 16 bytes at a time, as long as none of them must be escaped.
;;
;;   memory       0  what is written for each byte that must be escaped: at most 7 bytes, then their number
;;            65536  the text, at most 65,536 bytes
;;           131072  the result, at most 6 bytes for each
;;
;; `scripts/generate-wasm.ts` makes `json-escape-module.ts` of it.
(module
  (memory (export "memory") 9)

  ;; @param length of the text
  ;; @result length of the result
  (func (export "escape") (param $length i32) (result i32)
    (local $in i32) (local $end i32) (local $out i32)
    (local $piece v128) (local $plain i32) (local $left i32) (local $escaped i64)
    (local.set $in (i32.const 65536))
    (local.set $end (i32.add (local.get $in) (local.get $length)))
    (local.set $out (i32.const 131072))
    (loop $next
      ;; all 16 are copied; what is not plain is written over
      (local.set $piece (v128.load (local.get $in)))
      (v128.store (local.get $out) (local.get $piece))
      ;; how many are plain: none is below a space, a quotation mark or a backslash
      (local.set $plain
        (i32.ctz
          (i32.or
            (i32.const 0x10000)
            (i8x16.bitmask
              (v128.or
                (i8x16.lt_u (local.get $piece) (i8x16.splat (i32.const 0x20)))
                (v128.or
                  (i8x16.eq (local.get $piece) (i8x16.splat (i32.const 0x22)))
                  (i8x16.eq (local.get $piece) (i8x16.splat (i32.const 0x5c)))))))))
      (local.set $left (i32.sub (local.get $end) (local.get $in)))
      (if (i32.le_u (local.get $left) (local.get $plain))
        (then (return (i32.sub (i32.add (local.get $out) (local.get $left)) (i32.const 131072)))))
      (local.set $in (i32.add (local.get $in) (local.get $plain)))
      (local.set $out (i32.add (local.get $out) (local.get $plain)))
      (br_if $next (i32.eq (local.get $plain) (i32.const 16)))
      (local.set $escaped (i64.load (i32.shl (i32.load8_u (local.get $in)) (i32.const 3))))
      (i64.store (local.get $out) (local.get $escaped))
      (local.set $out
        (i32.add (local.get $out) (i32.wrap_i64 (i64.shr_u (local.get $escaped) (i64.const 56)))))
      (local.set $in (i32.add (local.get $in) (i32.const 1)))
      (br $next))
    (unreachable))
)

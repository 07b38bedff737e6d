import { defineConfig } from 'vite';

export default defineConfig({
  root: 'src/player',
  base: './',
  build: { outDir: '../../dist/player', emptyOutDir: true, target: 'es2022', assetsInlineLimit: 0 },
});

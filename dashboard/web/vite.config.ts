import { defineConfig, type Plugin } from 'vite';

// What of uPlot is not used here, and what the bundler cannot see by itself,
// because it hangs on properties and options: other shapes of lines than
// straight ones, the legend, and the joining of tables. It is a sixth of it.
const unused: [string, string][] = [
	['(paths.stepped = stepped);', ''],
	['(paths.bars    = bars);', ''],
	['(paths.spline  = monotoneCubic);', ''],
	['const showLegend = legend.show;', 'const showLegend = false;'],
	['uPlot.join = join;', ''],
];

const trimPlot: Plugin = {
	name: 'trim-uplot',
	transform(code, id) {
		if (!id.endsWith('/uPlot.esm.js')) return;
		for (const [text, instead] of unused) {
			// Another version has to be looked at anew, not be cut in the wrong place.
			if (code.split(text).length !== 2) throw new Error(`uPlot does not have ${JSON.stringify(text)} once`);
			code = code.replace(text, instead);
		}
		return { code, map: null };
	},
};

// Built once and served under any prefix, so every address is relative. One
// script and one style sheet: the page is small, and a second round trip costs
// more than it saves.
export default defineConfig({
	base: './',
	plugins: [trimPlot],
	// h(type, props, child, …) is a tenth shorter than jsx(type, {children: […]}).
	oxc: { jsx: { runtime: 'classic', pragma: 'h', pragmaFrag: 'Fragment' } },
	build: {
		target: 'es2023',
		modulePreload: { polyfill: false },
		assetsInlineLimit: 0, // data: addresses would need a wider policy
		cssCodeSplit: false,
		chunkSizeWarningLimit: 120,
		rolldownOptions: { transform: { inject: { h: ['preact', 'h'], Fragment: ['preact', 'Fragment'] } } },
		reportCompressedSize: false,
	},
	server: { host: '127.0.0.1', port: 5173, proxy: { '/api': 'http://127.0.0.1:5174' } },
	optimizeDeps: { exclude: ['uplot'] },
});

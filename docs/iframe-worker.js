/* The site's search runs in a worker, and browsers start none from the file system: there it runs in a frame. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.body.appendChild(document.createElement("iframe"));
      this.frame.hidden = true;
      const inner = this.frame.contentWindow;
      inner.document.open();
      inner.document.write("<!DOCTYPE html><body></body>");
      inner.document.close();
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inner.document.createElement("script");
      script.src = url;
      this.loaded = new Promise(done => { script.onload = done; });
      inner.document.body.appendChild(script);
    }
    postMessage(data) {
      const inner = this.frame.contentWindow;
      this.loaded.then(() => inner.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
